import type { AnyStoredEvent, EventStore } from '#hotbed/contracts';
import { pause } from './leadership';
import { AheadOfLog, WINDOW, type StreamRelay } from './stream-relay';

export interface RelayParts {
  store: EventStore;
  streams: readonly StreamRelay[];
  /** Wakes when the log grows beyond a position, or after the time. */
  wake: { waitBeyond(position: bigint, timeoutMs: number, signal?: AbortSignal): Promise<void> };
  onProblem: (stream: string, problem: string, error?: unknown) => void;
  onPublished: (count: number) => void;
  /** How often the broker is asked whether it still has everything; default 5 s. */
  verifyEveryMs?: number;
}

const POLL_MS = 1000;
const VERIFY_MS = 5000;
const RETRY_MS = { first: 50, most: 1000 };

/**
 * Moves events from the log to the broker during one term of leadership. One reader feeds every stream that is level
 * with it; a stream that failed (or has just begun) catches up by itself from where the broker is, and joins the reader
 * when it has reached it. So a stream in trouble holds up no other.
 */
export class Relay {
  /** Everything up to here has been handed to the streams that are level. */
  private readUpTo = 0n;
  private readonly level = new Set<StreamRelay>();
  private readonly fallenBehind = new Map<StreamRelay, () => void>();
  private verifyAtMs = Date.now() + VERIFY_MS;

  constructor(private readonly parts: RelayParts) {}

  /** Whether every stream is level with the log's reader. */
  get isLevel(): boolean {
    return this.level.size === this.parts.streams.length;
  }

  get position(): bigint {
    return this.readUpTo;
  }

  /** After a reconnection the broker may be another one, or an emptier one. */
  verifySoon(): void {
    this.verifyAtMs = 0;
  }

  /** Runs until `stop` aborts. @throws AheadOfLog: an operator has to decide */
  async run(stop: AbortSignal): Promise<void> {
    const over = new AbortController();
    const signal = AbortSignal.any([stop, over.signal]);
    this.readUpTo = (await this.parts.store.head()).position;
    try {
      await Promise.all([this.follow(signal), ...this.parts.streams.map((stream) => this.keepLevel(stream, signal))]);
    } finally {
      over.abort();
    }
  }

  private async follow(signal: AbortSignal): Promise<void> {
    while (!signal.aborted) {
      if (Date.now() >= this.verifyAtMs) await this.verify();
      const events = await this.readNext(signal);
      if (events.length === 0) continue;
      // In one turn: whoever is level now gets this window, whoever is not catches up to its end by itself.
      const takers = [...this.level];
      this.readUpTo = events.at(-1)!.globalPosition;
      await Promise.all(takers.map((stream) => this.hand(stream, events)));
    }
  }

  /** Asks the broker whether it still has everything; a stream that lost something mends itself. */
  private async verify(): Promise<void> {
    this.verifyAtMs = Date.now() + (this.parts.verifyEveryMs ?? VERIFY_MS);
    await Promise.all(
      [...this.level].map(async (stream) => {
        try {
          if (await stream.isIntact()) return;
        } catch (error) {
          this.parts.onProblem(stream.name, 'cannot be asked whether it still has everything', error);
        }
        this.fallBehind(stream);
      }),
    );
  }

  private fallBehind(stream: StreamRelay): void {
    this.level.delete(stream);
    this.fallenBehind.get(stream)?.();
  }

  private async readNext(signal: AbortSignal): Promise<AnyStoredEvent[]> {
    try {
      const events = await this.parts.store.readAll({ after: this.readUpTo, limit: WINDOW });
      if (events.length > 0) return events;
      await Promise.all([...this.level].map((stream) => stream.settle()));
      await this.parts.wake.waitBeyond(this.readUpTo, Math.min(POLL_MS, this.parts.verifyEveryMs ?? POLL_MS), signal);
      return [];
    } catch (error) {
      this.parts.onProblem('log', 'cannot be read', error);
      await pause(POLL_MS, signal);
      return [];
    }
  }

  private async hand(stream: StreamRelay, events: readonly AnyStoredEvent[]): Promise<void> {
    const own = events.filter((event) => stream.carries(event));
    if (own.length === 0) return;
    try {
      const outcome = await stream.publish(own);
      if (outcome.ok) return this.parts.onPublished(own.length);
      this.parts.onProblem(stream.name, outcome.problem);
    } catch (error) {
      this.parts.onProblem(stream.name, 'publishing failed', error);
    }
    this.fallBehind(stream);
  }

  private async keepLevel(stream: StreamRelay, signal: AbortSignal): Promise<void> {
    let retryMs = RETRY_MS.first;
    while (!signal.aborted) {
      try {
        await stream.synchronise();
        if (await this.join(stream, signal)) {
          retryMs = RETRY_MS.first;
          await this.untilBehind(stream, signal);
          continue;
        }
      } catch (error) {
        if (error instanceof AheadOfLog) throw error;
        this.parts.onProblem(stream.name, 'cannot be brought up to the log', error);
      }
      await pause(retryMs, signal);
      retryMs = Math.min(retryMs * 2, RETRY_MS.most);
    }
  }

  /** Catches up until nothing is missing up to the reader's place, and joins in that very turn. */
  private async join(stream: StreamRelay, signal: AbortSignal): Promise<boolean> {
    for (;;) {
      const goal = this.readUpTo;
      if (!(await stream.catchUp(goal, signal))) return false;
      if (goal === this.readUpTo) {
        this.level.add(stream);
        return true;
      }
    }
  }

  private untilBehind(stream: StreamRelay, signal: AbortSignal): Promise<void> {
    if (signal.aborted || !this.level.has(stream)) return Promise.resolve();
    return new Promise((resolve) => {
      const done = (): void => {
        this.fallenBehind.delete(stream);
        signal.removeEventListener('abort', done);
        resolve();
      };
      this.fallenBehind.set(stream, done);
      signal.addEventListener('abort', done);
    });
  }
}
