import { setMaxListeners } from 'node:events';
import { isDeterministicFailure } from '#hotbed/fold';
import {
  DomainError,
  InvalidInput,
  LeaseLost,
  toInt32Array,
  type AppendItem,
  type EventStore,
  type RolloutsRequested,
  type StoredEvent,
} from '#hotbed/contracts';
import type { Engine, PolicyHandle, SampleRequest, SampleResult } from '#hotbed/engine';
import type { TokenDecoder } from '#hotbed/models';
import type { Logger } from '#hotbed/runtime';
import type { PolicyInUse } from '../adapter/policy-states';
import type { Failpoints } from '../failpoint/failpoints';
import { pause, retryDelayMs } from '../retry-delay';
import type { OpenRequest } from '#hotbed/event-store';
import { completedItem, failedItem } from './rollout-events';
import { sampleUntil } from './sample-until';

type Requested = StoredEvent<'RolloutsRequested'>;
type Prompt = RolloutsRequested['prompts'][number];

/** A request that could not be answered rests this long before it is taken up again. */
const TRY_AGAIN_MS = 1000;

/** Whoever hands out policy states of one adapter. */
export interface PolicySource {
  policyState(opIndex: bigint): Promise<PolicyInUse>;
}

/**
 * Answers rollout requests. All samples of all prompts of all requests are in the engine at once; each prompt's group
 * is recorded when it is complete. A request is a function of its own fields, so whatever is left unanswered by a crash,
 * a lost lease or a busy engine is simply answered later, with the same tokens.
 */
export class RolloutAnswerer {
  private readonly inHand = new Set<string>();
  private readonly running = new Set<Promise<void>>();
  private readonly stopping = new AbortController();

  constructor(
    private readonly engine: Engine,
    private readonly events: EventStore,
    private readonly failpoints: Failpoints,
    private readonly logger: Logger,
    private readonly openTokenizer: () => Promise<TokenDecoder>,
  ) {
    // Every sample in the engine listens; that is no leak.
    setMaxListeners(0, this.stopping.signal);
  }

  /** Prompts being answered now. */
  get openPrompts(): number {
    return this.inHand.size;
  }

  /** Begins to answer what is not in hand yet. @param source of the adapter's policy states; null = the plain base. */
  answer(open: readonly OpenRequest[], source: PolicySource | null): void {
    if (this.stopping.signal.aborted) return;
    for (const prompts of byRequest(open.filter((row) => !this.inHand.has(keyOf(row)))).values()) {
      for (const row of prompts) this.inHand.add(keyOf(row));
      const work = this.answerRequest(prompts, source)
        .catch((error: unknown) => this.leaveOpen(error, prompts))
        .finally(() => {
          for (const row of prompts) this.inHand.delete(keyOf(row));
          this.running.delete(work);
        });
      this.running.add(work);
    }
  }

  /** Cancels what is being sampled; it stays open in the log. */
  async stop(): Promise<void> {
    this.stopping.abort();
    await Promise.all(this.running);
  }

  private async answerRequest(rows: readonly OpenRequest[], source: PolicySource | null): Promise<void> {
    const first = rows[0] as OpenRequest;
    const request = await this.read(first);
    const contradiction = contradictionOf(request, this.engine);
    if (contradiction !== null) {
      // Without an adapter the request may be meant for a worker with another base.
      if (source === null) return;
      await Promise.all(rows.map((row) => this.fail(request, row.promptIndex, contradiction)));
      return;
    }
    let inUse: PolicyInUse | null = null;
    try {
      inUse = source === null ? null : await source.policyState(first.opIndex ?? 0n);
      const policy = inUse?.policy ?? null;
      await Promise.all(rows.map((row) => this.answerPrompt(request, row.promptIndex, policy)));
    } catch (error) {
      // The adapter itself can never be made, so nothing can be sampled from it.
      if (inUse !== null || !(error instanceof DomainError) || !isDeterministicFailure(error)) throw error;
      await Promise.all(rows.map((row) => this.fail(request, row.promptIndex, error)));
    } finally {
      inUse?.done();
    }
  }

  private async answerPrompt(request: Requested, promptIndex: number, policy: PolicyHandle | null): Promise<void> {
    const prompt = request.payload.prompts.find((p) => p.promptIndex === promptIndex);
    if (prompt === undefined) throw new Error(`request ${request.payload.requestId} has no prompt ${promptIndex}`);
    try {
      const result = await this.sample(request, prompt, policy);
      this.failpoints.hit('before-rollouts-commit');
      await this.append(completedItem(request, prompt, result, Date.now()));
      this.failpoints.hit('after-rollouts-commit');
    } catch (error) {
      if (!(error instanceof DomainError) || !isDeterministicFailure(error)) throw error;
      await this.fail(request, promptIndex, error);
    }
  }

  /** A busy engine is asked again; it refuses rather than stalls. */
  private async sample(request: Requested, prompt: Prompt, policy: PolicyHandle | null): Promise<SampleResult> {
    const { temperature, topK, topP, maxTokens, stopTokenIds, stopStrings = [] } = request.payload.sampling;
    const decoder = stopStrings.length === 0 ? null : await this.openTokenizer();
    for (let attempt = 1; ; attempt++) {
      this.stopping.signal.throwIfAborted();
      try {
        const { signal } = this.stopping;
        const call: SampleRequest = {
          policy,
          prompt: toInt32Array(prompt.tokens),
          seeds: prompt.seeds,
          params: { temperature, topK, topP, maxTokens, stopTokenIds },
          promptLogprobs: false,
          tenant: request.tenantId,
        };
        const sampling =
          decoder === null
            ? this.engine.sample(call, { signal })
            : sampleUntil(this.engine, call, stopStrings, decoder, signal);
        this.failpoints.hit('mid-sample');
        return await sampling;
      } catch (error) {
        if (!(error instanceof DomainError) || error.code !== 'busy') throw error;
        await pause(retryDelayMs(attempt), this.stopping.signal);
      }
    }
  }

  private async fail(request: Requested, promptIndex: number, error: DomainError): Promise<void> {
    await this.append(failedItem(request, promptIndex, error, Date.now()));
  }

  /** Somebody else's answer is as good as ours: it has the same tokens. */
  private async append(item: AppendItem): Promise<void> {
    for (let attempt = 1; ; attempt++) {
      try {
        await this.events.append(item);
        return;
      } catch (error) {
        if (error instanceof DomainError && error.code === 'request_answered') return;
        if (!(error instanceof DomainError) || !error.retryable || this.stopping.signal.aborted) throw error;
        await pause(retryDelayMs(attempt), this.stopping.signal);
      }
    }
  }

  private async read(row: OpenRequest): Promise<Requested> {
    const [event] = await this.events.readStream(row.streamId, {
      after: row.requestVersion - 1n,
      upTo: row.requestVersion,
    });
    if (event?.type === 'RolloutsRequested') return event;
    throw new Error(`${row.streamId} has no RolloutsRequested at ${row.requestVersion}`);
  }

  private async leaveOpen(error: unknown, rows: readonly OpenRequest[]): Promise<void> {
    if (this.stopping.signal.aborted || error instanceof LeaseLost) return;
    const { requestId } = rows[0] as OpenRequest;
    this.logger.error({ err: error, requestId }, 'rollout request stays open; trying again');
    await pause(TRY_AGAIN_MS, this.stopping.signal);
  }
}

/** The adapter of a request belongs to this engine's base; its request must say the same, and name a policy state. */
function contradictionOf({ payload }: Requested, engine: Engine): DomainError | null {
  const { baseDigest, numericsId } = engine.info();
  if (payload.baseDigest !== baseDigest || payload.numericsId !== numericsId) {
    return new DomainError(
      'EngineFault',
      'base_mismatch',
      `the request is for base ${payload.baseDigest} (${payload.numericsId}), ` +
        `its adapter belongs to ${baseDigest} (${numericsId})`,
    );
  }
  if (payload.adapterId === null || payload.opIndex !== null) return null;
  return new InvalidInput([{ path: 'opIndex', message: 'expected the operation index of the policy state' }]);
}

function byRequest(rows: readonly OpenRequest[]): Map<string, OpenRequest[]> {
  const requests = new Map<string, OpenRequest[]>();
  for (const row of rows) {
    const prompts = requests.get(row.requestId);
    if (prompts === undefined) requests.set(row.requestId, [row]);
    else prompts.push(row);
  }
  return requests;
}

const keyOf = (row: OpenRequest): string => `${row.requestId}/${row.promptIndex}`;
