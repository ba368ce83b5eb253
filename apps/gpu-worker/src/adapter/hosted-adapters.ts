import { assertSameBase, readHistory, type AdapterHistory } from '#hotbed/fold';
import { DomainError, LeaseLost } from '#hotbed/contracts';
import type { Lease } from '#hotbed/event-store';
import { AdapterRunner } from './adapter-runner';
import type { AdapterTools } from './adapter-tools';

/** Where leases come from; `claim` gives null while another live worker holds the resource. */
export interface LeaseDesk {
  claim(resource: string): Promise<Lease | null>;
  release(resource: string): Promise<void>;
}

/** A claim that was refused is repeated after this long: its owner may have died. */
const CLAIM_AGAIN_MS = 1000;

/** The adapters on this worker: each under its lease, with one runner. */
export class HostedAdapters {
  private readonly runners = new Map<string, AdapterRunner>();
  private readonly opening = new Set<string>();
  private readonly refusedUntil = new Map<string, number>();
  private readonly foreign = new Set<string>();
  private readonly stopped = new Map<string, string>();
  private closed = false;

  constructor(
    private readonly tools: AdapterTools,
    private readonly leases: LeaseDesk,
  ) {}

  get count(): number {
    return this.runners.size;
  }

  /** What an operator should know, one line per adapter. */
  get alarms(): string[] {
    const alarms = [...this.runners.values()].map((runner) => runner.alarm).filter((alarm) => alarm !== null);
    return [...alarms, ...this.stopped.values()];
  }

  get(adapterId: string): AdapterRunner | null {
    return this.runners.get(adapterId) ?? null;
  }

  /**
   * Claims the adapter and starts its runner, unless it is hosted, elsewhere, of another base, or stopped for cause.
   * Never throws: what is wrong with one adapter is no other adapter's matter.
   */
  async host(adapterId: string): Promise<void> {
    if (this.isSettled(adapterId)) return;
    this.opening.add(adapterId);
    try {
      const history = await readHistory(this.tools.events, adapterId);
      assertSameBase(this.tools.engine, history);
      const lease = await this.leases.claim(resourceOf(adapterId));
      if (lease === null) this.refusedUntil.set(adapterId, Date.now() + CLAIM_AGAIN_MS);
      else this.start(history, lease.epoch);
    } catch (error) {
      this.notHosted(adapterId, error);
    } finally {
      this.opening.delete(adapterId);
    }
  }

  /** The lease went to somebody else. */
  async lost(resource: string): Promise<void> {
    const runner = [...this.runners.values()].find((r) => resourceOf(r.adapterId) === resource);
    if (runner === undefined) return;
    this.tools.logger.warn({ adapterId: runner.adapterId }, 'lease lost');
    this.runners.delete(runner.adapterId);
    await runner.abandon();
  }

  /** Frees policy states that nobody uses, then the adapters idle for longest, until `bytes` are at most `limit`. */
  async evictIdle(bytes: () => number, limit: number): Promise<void> {
    while (bytes() > limit && (await this.tools.policies.releaseOldest()));
    const now = Date.now();
    const idle = [...this.runners.values()]
      .map((runner) => ({ runner, idleMs: runner.idleMs(now) }))
      .filter((entry): entry is { runner: AdapterRunner; idleMs: number } => entry.idleMs !== null)
      .sort((a, b) => b.idleMs - a.idleMs);
    for (const { runner } of idle) {
      if (bytes() <= limit) return;
      this.tools.logger.info({ adapterId: runner.adapterId }, 'idle adapter leaves memory');
      await runner.evict();
    }
  }

  /** Every runner ends after the operation at hand. */
  async stop(): Promise<void> {
    this.closed = true;
    await Promise.all([...this.runners.values()].map((runner) => runner.stop()));
  }

  /** Every runner ends now; nothing more is committed. */
  async abandon(): Promise<void> {
    this.closed = true;
    const runners = [...this.runners.values()];
    this.runners.clear();
    await Promise.all(runners.map((runner) => runner.abandon()));
  }

  private isSettled(adapterId: string): boolean {
    return (
      this.closed ||
      this.runners.has(adapterId) ||
      this.opening.has(adapterId) ||
      this.foreign.has(adapterId) ||
      this.stopped.has(adapterId) ||
      (this.refusedUntil.get(adapterId) ?? 0) > Date.now()
    );
  }

  private notHosted(adapterId: string, error: unknown): void {
    const { logger } = this.tools;
    const code = error instanceof DomainError ? error.code : null;
    if (code === 'base_mismatch') {
      this.foreign.add(adapterId);
      // Another base is another worker's; the same base under another contract may be a setting that was changed.
      const level = (error as DomainError).context.numericsId === undefined ? 'info' : 'warn';
      logger[level]({ err: error, adapterId }, 'adapter belongs to another base or contract');
    } else if (code === 'numerics_mismatch') {
      this.stopped.set(adapterId, (error as DomainError).message);
      logger.fatal({ err: error, adapterId }, 'adapter stopped');
    } else {
      this.refusedUntil.set(adapterId, Date.now() + CLAIM_AGAIN_MS);
      logger.error({ err: error, adapterId }, 'adapter cannot be hosted now; trying again');
    }
  }

  private start(history: AdapterHistory, leaseEpoch: bigint): void {
    const { adapterId } = history;
    if (this.closed) return;
    this.tools.failpoints.hit('after-lease-claim');
    const runner = AdapterRunner.start(this.tools, history, leaseEpoch, (reason) => this.ended(runner, reason));
    this.runners.set(adapterId, runner);
  }

  private ended(runner: AdapterRunner, reason: Error | null): void {
    const { adapterId } = runner;
    if (this.runners.get(adapterId) === runner) this.runners.delete(adapterId);
    // A refused commit may say so before the lease's own look does.
    if (reason instanceof LeaseLost) this.tools.logger.warn({ adapterId }, 'lease lost');
    else if (reason !== null) {
      this.stopped.set(adapterId, reason.message);
      this.tools.logger.fatal({ err: reason, adapterId }, 'adapter stopped');
    }
    this.leases.release(resourceOf(adapterId)).catch((error: unknown) => {
      this.tools.logger.warn({ err: error, adapterId }, 'lease could not be released; it ends with this worker');
    });
  }
}

export const resourceOf = (adapterId: string): string => `adapter:${adapterId}`;
