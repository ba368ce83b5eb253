import type { Logger } from '#hotbed/runtime';

/** A server that this process started. */
export interface KeptService {
  pid: number;
  stop(): Promise<void>;
}

const WATCH_MS = 500;

/** Keeps a server of ours running: whoever kills it sees it come back on the same port and data. */
export class ServiceKeeper<S extends KeptService> {
  private stopping = false;
  private restarting: Promise<void> | null = null;
  private readonly timer: NodeJS.Timeout;

  /** @param restart starts it again on the same port and data */
  constructor(
    private readonly name: string,
    private service: S,
    private readonly restart: () => Promise<S>,
    private readonly logger: Logger,
    private readonly onProgress: (line: string) => void,
  ) {
    this.timer = setInterval(() => this.look(), WATCH_MS);
  }

  get current(): S {
    return this.service;
  }

  async stop(): Promise<void> {
    this.stopping = true;
    clearInterval(this.timer);
    await this.restarting;
    await this.service.stop();
  }

  private look(): void {
    if (this.stopping || this.restarting !== null || isAlive(this.service.pid)) return;
    this.onProgress(`${this.name} ended; starting it again`);
    this.restarting = this.restart()
      .then((service) => {
        this.service = service;
        this.onProgress(`${this.name} runs again`);
      })
      // The next look tries again: a killed server's children may hold its data for a moment.
      .catch((error: unknown) => this.logger.error({ err: error }, `${this.name} could not be started again`))
      .finally(() => (this.restarting = null));
  }
}

function isAlive(pid: number): boolean {
  try {
    process.kill(pid, 0);
    return true;
  } catch {
    return false;
  }
}
