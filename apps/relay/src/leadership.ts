import { newId } from '#hotbed/contracts';
import { Leases, type createPool } from '#hotbed/event-store';

const RESOURCE = 'relay';
const ASK_AGAIN_MS = 250;

/** Being the one relay that publishes, until `signal` aborts. */
export interface Term {
  epoch: bigint;
  signal: AbortSignal;
  /** Lets the next relay begin at once. */
  end(): Promise<void>;
}

/**
 * One relay is active at a time: a lease whose owner holds a session advisory lock. Its epoch guards the cursors, and
 * chained publishes guard the streams, so that a relay that lost its connection unnoticed can do no harm.
 */
export class Leadership {
  constructor(
    private readonly databaseUrl: string,
    private readonly pool: ReturnType<typeof createPool>,
  ) {}

  /** Resolves when this process is the active relay; null when `stop` aborted first. @throws Unavailable */
  async acquire(stop: AbortSignal): Promise<Term | null> {
    const lost = new AbortController();
    const leases = await Leases.register({
      databaseUrl: this.databaseUrl,
      pool: this.pool,
      workerId: newId(),
      onLost: () => lost.abort(),
      onDisconnected: () => lost.abort(),
    });
    try {
      while (!stop.aborted && !lost.signal.aborted) {
        const lease = await leases.claim(RESOURCE);
        if (lease !== null) return { epoch: lease.epoch, signal: lost.signal, end: () => leases.close() };
        await pause(ASK_AGAIN_MS, stop);
      }
    } catch (error) {
      await leases.close();
      throw error;
    }
    await leases.close();
    return null;
  }
}

/** Resolves after the time or at the abort, whichever is first. */
export function pause(ms: number, signal: AbortSignal): Promise<void> {
  if (signal.aborted) return Promise.resolve();
  return new Promise((resolve) => {
    const done = (): void => {
      clearTimeout(timer);
      signal.removeEventListener('abort', done);
      resolve();
    };
    const timer = setTimeout(done, ms);
    signal.addEventListener('abort', done);
  });
}
