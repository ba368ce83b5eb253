import type { ResumedLane } from '#hotbed/contracts';

export interface ResumedLanesOptions {
  find: () => Promise<ResumedLane[]>;
  /** Never throws: a failure is the lane's own affair. */
  workOff: (lane: ResumedLane) => Promise<void>;
  everyMs: number;
  onProblem: (line: string, error: unknown) => void;
}

/** Looks now and then for parked lanes that an operator has opened again: their messages are gone, so none tells of them. */
export class ResumedLanes {
  private timer: NodeJS.Timeout | undefined;
  private looking: Promise<void> = Promise.resolve();
  private stopping = false;
  private couldLook = true;

  constructor(private readonly options: ResumedLanesOptions) {}

  start(): void {
    if (this.stopping) return;
    this.timer = setTimeout(() => {
      this.looking = this.look().finally(() => this.start());
    }, this.options.everyMs);
  }

  /** Resolves when nothing is worked off any more. */
  async stop(): Promise<void> {
    this.stopping = true;
    clearTimeout(this.timer);
    await this.looking;
  }

  private async look(): Promise<void> {
    const { find, workOff, onProblem } = this.options;
    try {
      const lanes = await find();
      this.couldLook = true;
      for (const lane of lanes) if (!this.stopping) await workOff(lane);
    } catch (error) {
      // Once for each outage of the database, which others report as well.
      if (this.couldLook) onProblem('resumed lanes cannot be looked for', error);
      this.couldLook = false;
    }
  }
}
