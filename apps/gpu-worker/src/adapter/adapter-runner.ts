import {
  applyPrepared,
  catchUp,
  prepareOperation,
  recordOutcome,
  weightsIndex,
  type AdapterHistory,
  type OperationResult,
  type PlacedOperation,
  type PreparedOperation,
} from '#hotbed/fold';
import { DomainError, LeaseLost, type AdapterCheckpointed } from '#hotbed/contracts';
import { EvictingEngine, type AdapterHandle, type PolicyHandle } from '#hotbed/engine';
import { outcomeItem, type Writer } from './adapter-events';
import type { AdapterTools } from './adapter-tools';
import { CommitQueue } from './commit-queue';
import { foldFromCheckpoint } from './fold-from-checkpoint';
import type { PolicyInUse } from './policy-states';
import { pause, retryDelayMs } from '../retry-delay';
import { Waiters } from './waiters';
import { writeVersion } from './write-version';

/** The adapter as it lies in the engine: at most a few commits ahead of the log, and never shown before they are done. */
interface HotAdapter {
  handle: AdapterHandle;
  /** Last operation computed. */
  opIndex: bigint;
  /** Last operation computed that changed A and B. */
  weightsIndex: bigint;
  /** Number of the newest version written. */
  version: number;
  /** Whether an operation is in the engine now. */
  computing: boolean;
}

const COMMIT_DEPTH = 4;

/** Errors after which folding again on this worker cannot help; the adapter stops and readiness says why. */
const FATAL_CODES = new Set([
  'fold_diverged',
  'base_mismatch',
  'numerics_mismatch',
  // Of an operation it is an outcome; here it can only be of the adapter's own spec.
  'invalid_argument',
  'disposed',
]);

/**
 * Applies one adapter's accepted operations under one lease.
 *
 * 1. Operations are computed one after another in opIndex order and committed in the same order; computing operation
 *    n + 1 may overlap the commit of n, nothing else runs ahead.
 * 2. Nothing leaves before it is committed: a policy state is handed out only once its operation is in the log.
 * 3. After a failed commit, or any failure that is not a function of (state, operation), the hot adapter and every
 *    policy state beyond the log are dropped, and the adapter is folded again.
 * 4. Losing the lease ends the runner; what it held is dropped.
 */
export class AdapterRunner {
  private hot: HotAdapter | null = null;
  private readonly stopping = new AbortController();
  private readonly appliedWaiters = new Waiters();
  private wakeUp: (() => void) | null = null;
  private woken = false;
  private failedAttempts = 0;
  private problem: string | null = null;
  private readonly loop: Promise<void>;
  private lastActiveMs = Date.now();

  private constructor(
    private readonly tools: AdapterTools,
    private readonly history: AdapterHistory,
    private readonly writer: Writer,
    onEnd: (reason: Error | null) => void,
  ) {
    this.loop = this.run().then(
      () => onEnd(null),
      (error: unknown) => onEnd(error instanceof Error ? error : new Error(String(error))),
    );
  }

  /** @param history as read at any time before: the runner reads on from there. @param onEnd called once, null = stopped */
  static start(
    tools: AdapterTools,
    history: AdapterHistory,
    leaseEpoch: bigint,
    onEnd: (reason: Error | null) => void,
  ): AdapterRunner {
    const { adapterId, tenantId } = history;
    return new AdapterRunner(tools, history, { workerId: tools.workerId, adapterId, tenantId, leaseEpoch }, onEnd);
  }

  get adapterId(): string {
    return this.writer.adapterId;
  }

  /** What an operator should know, or null. */
  get alarm(): string | null {
    return this.problem;
  }

  /** Milliseconds since it last computed, or null while it is not in memory or at work. */
  idleMs(nowMs: number): number | null {
    if (this.hot === null || this.hot.computing || this.history.pending.length > 0) return null;
    return nowMs - this.lastActiveMs;
  }

  /** Something may have been appended to the adapter's stream. */
  wake(): void {
    this.woken = true;
    this.wakeUp?.();
  }

  /**
   * Frees the adapter's memory: into a snapshot where the engine keeps them, from which the next operation brings it
   * back; else, or where it cannot be written, the next operation folds it again. Only while `idleMs` is not null.
   */
  async evict(): Promise<void> {
    const { engine, logger } = this.tools;
    const { hot, adapterId } = this;
    if (hot === null || this.idleMs(Date.now()) === null) return;
    if (engine instanceof EvictingEngine) {
      try {
        await engine.evict(hot.handle);
        return;
      } catch (error) {
        logger.warn({ err: error, adapterId }, 'no snapshot of an idle adapter; it will be folded again');
      }
    }
    if (this.hot === hot && this.idleMs(Date.now()) !== null) await this.dropHot();
  }

  /**
   * state(opIndex) to sample from, once its operation is committed; derived again when it is no longer hot.
   * @throws LeaseLost when the runner ends before.
   */
  async policyState(opIndex: bigint): Promise<PolicyInUse> {
    if (opIndex > this.history.applied) {
      this.wake();
      await this.appliedWaiters.reached(opIndex);
    }
    const index = weightsIndex(this.history, opIndex);
    return this.tools.policies.use(this.adapterId, index, () => this.derivePolicy(index));
  }

  /** Ends after the operation at hand. @returns when nothing of it runs any more. */
  async stop(): Promise<void> {
    this.stopping.abort(this.leaseLost());
    this.wake();
    await this.loop;
  }

  /** Ends at once: what is in the engine is cancelled, nothing more is committed. */
  async abandon(): Promise<void> {
    this.stopping.abort(this.leaseLost());
    this.wake();
    this.tools.policies.forget(this.adapterId);
    await this.dropHot();
    await this.loop;
  }

  private leaseLost(): LeaseLost {
    return new LeaseLost(`adapter:${this.adapterId}`, this.writer.leaseEpoch.toString());
  }

  private get ended(): boolean {
    return this.stopping.signal.aborted;
  }

  private async run(): Promise<void> {
    let end: Error = this.leaseLost();
    try {
      while (!this.ended) {
        try {
          await this.applyWhatIsAccepted();
          this.failedAttempts = 0;
          this.problem = null;
          await this.untilWoken();
        } catch (error) {
          if (this.ended) break;
          await this.forgetUncommitted();
          if (isFinal(error)) throw error;
          await this.beforeNextAttempt(error);
        }
      }
    } catch (error) {
      end = error as Error;
      throw error;
    } finally {
      this.appliedWaiters.fail(end);
      await this.dropHot();
    }
  }

  private async applyWhatIsAccepted(): Promise<void> {
    await catchUp(this.history, this.tools.events);
    this.appliedWaiters.advance(this.history.applied);
    if (this.history.pending.length === 0) return;
    this.hot ??= await this.fold();
    const commits = new CommitQueue(COMMIT_DEPTH);
    try {
      await this.applyAll([...this.history.pending], this.hot, commits);
      await commits.drain();
    } finally {
      await commits.settled();
    }
    // What was accepted meanwhile is taken in at once.
    this.woken = true;
  }

  private async applyAll(pending: PlacedOperation[], hot: HotAdapter, commits: CommitQueue): Promise<void> {
    let next = this.prepareAhead(pending[0]);
    for (const [i, placed] of pending.entries()) {
      if (this.ended) return;
      const prepared = (await next) ?? (await prepareOperation(placed, this.tools.events));
      next = this.prepareAhead(pending[i + 1]);
      this.tools.failpoints.hit('before-apply');
      const result = await this.compute(hot, prepared);
      const version = await this.versionOf(hot, placed, result);
      this.tools.failpoints.hit('after-apply');
      await commits.add(() => this.commit(placed, result, version));
    }
  }

  /** Reads the next operation's data while this one computes; null on failure, it is then read again in its turn. */
  private async prepareAhead(placed: PlacedOperation | undefined): Promise<PreparedOperation | null> {
    if (placed === undefined) return null;
    return prepareOperation(placed, this.tools.events).catch(() => null);
  }

  private async compute(hot: HotAdapter, prepared: PreparedOperation): Promise<OperationResult> {
    const { engine, failpoints, policies } = this.tools;
    hot.computing = true;
    try {
      const running = applyPrepared(engine, hot.handle, prepared);
      if (prepared.operation.kind === 'forward_backward') failpoints.hit('mid-backward');
      if (prepared.operation.kind === 'optim_step') failpoints.hit('mid-optim-step');
      const result = await running;
      hot.opIndex = prepared.opIndex;
      if (prepared.operation.kind === 'optim_step' && result.outcome === 'applied') {
        hot.weightsIndex = prepared.opIndex;
        policies.offer(this.adapterId, hot.weightsIndex, await engine.pin(hot.handle));
      }
      return result;
    } finally {
      hot.computing = false;
      this.lastActiveMs = Date.now();
    }
  }

  /** The files of a checkpoint operation. They do not change the state, so a full disk is waited out, with an alarm. */
  private async versionOf(
    hot: HotAdapter,
    placed: PlacedOperation,
    result: OperationResult,
  ): Promise<AdapterCheckpointed | null> {
    if (placed.operation.kind !== 'checkpoint' || result.outcome === 'failed') return null;
    const { created, tenantId } = this.history;
    for (let attempt = 1; ; attempt++) {
      try {
        const files = await writeVersion(this.tools, tenantId, hot.handle, placed.opIndex);
        this.problem = null;
        return {
          adapterId: this.adapterId,
          version: ++hot.version,
          opIndex: placed.opIndex.toString(),
          parentVersion: hot.version === 1 ? null : hot.version - 1,
          label: placed.operation.label,
          spec: created.spec,
          baseDigest: created.baseDigest,
          numericsId: created.numericsId,
          stateDigest: result.stateDigest,
          ...files,
          workerId: this.writer.workerId,
          leaseEpoch: this.writer.leaseEpoch.toString(),
        };
      } catch (error) {
        if (this.ended) throw error;
        this.problem = `adapter ${this.adapterId}: version cannot be written: ${textOf(error)}`;
        this.tools.logger.error({ err: error, adapterId: this.adapterId, attempt }, 'version cannot be written');
        await pause(retryDelayMs(attempt), this.stopping.signal);
      }
    }
  }

  private async commit(
    placed: PlacedOperation,
    result: OperationResult,
    version: AdapterCheckpointed | null,
  ): Promise<void> {
    if (this.ended) return;
    this.tools.failpoints.hit('before-commit');
    await this.tools.events.append(outcomeItem(this.writer, placed, result, version, Date.now()));
    this.tools.failpoints.hit('after-commit');
    const outputDigest = result.outcome === 'applied' ? result.outputDigest : null;
    recordOutcome(this.history, placed.opIndex, {
      outcome: result.outcome,
      stateDigest: result.stateDigest,
      outputDigest,
    });
    this.appliedWaiters.advance(this.history.applied);
  }

  private async fold(): Promise<HotAdapter> {
    const { applied, adapterId, checkpoints } = this.history;
    const folded = await foldFromCheckpoint(this.tools, this.history, applied, this.stopping.signal);
    this.tools.logger.info(
      { adapterId, opIndex: `${applied}`, from: `${folded.startedAt}`, replayed: folded.digests.length },
      'adapter is hot',
    );
    const index = weightsIndex(this.history, applied);
    this.tools.policies.offer(adapterId, index, await this.tools.engine.pin(folded.adapter));
    return {
      handle: folded.adapter,
      opIndex: applied,
      weightsIndex: index,
      version: checkpoints.at(-1)?.version ?? 0,
      computing: false,
    };
  }

  private async derivePolicy(index: bigint): Promise<PolicyHandle> {
    const { engine } = this.tools;
    const hot = this.hot;
    if (hot !== null && !hot.computing && hot.weightsIndex === index) return engine.pin(hot.handle);
    const scratch = await foldFromCheckpoint(this.tools, this.history, index, this.stopping.signal);
    try {
      return await engine.pin(scratch.adapter);
    } finally {
      await engine.dropAdapter(scratch.adapter);
    }
  }

  private async forgetUncommitted(): Promise<void> {
    this.tools.policies.forgetAfter(this.adapterId, this.history.applied);
    await this.dropHot();
  }

  private async dropHot(): Promise<void> {
    const hot = this.hot;
    this.hot = null;
    if (hot !== null) await this.tools.engine.dropAdapter(hot.handle).catch(ignoreDisposed);
  }

  private async beforeNextAttempt(error: unknown): Promise<void> {
    this.failedAttempts++;
    this.problem = `adapter ${this.adapterId}: attempt ${this.failedAttempts} failed: ${textOf(error)}`;
    this.tools.logger.error({ err: error, adapterId: this.adapterId, attempt: this.failedAttempts }, 'folding again');
    await pause(retryDelayMs(this.failedAttempts), this.stopping.signal);
  }

  private async untilWoken(): Promise<void> {
    if (!this.woken && !this.ended) {
      await new Promise<void>((resolve) => {
        this.wakeUp = resolve;
      });
      this.wakeUp = null;
    }
    this.woken = false;
  }
}

function isFinal(error: unknown): boolean {
  if (error instanceof LeaseLost) return true;
  return error instanceof DomainError && FATAL_CODES.has(error.code);
}

function ignoreDisposed(error: unknown): void {
  if (!(error instanceof DomainError) || error.code !== 'disposed') throw error;
}

function textOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}
