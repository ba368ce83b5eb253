import {
  float32Tensor,
  int32Tensor,
  newId,
  rolloutId,
  streamId,
  type AnyNewEvent,
  type AppendResult,
  type InlineDatum,
  type Operation,
  type PayloadOf,
  type RolloutDatum,
} from '#hotbed/contracts';
import { newEvent, type TestDatabase } from '#hotbed/event-store/testing';

const BASE = { baseDigest: 'b'.repeat(64), numericsId: 'f32-1' };
const SPEC = { rank: 4, alpha: 8, rslora: false, targets: ['q' as const], seed: '1' };
const SAMPLING = { temperature: 1, topK: 0, topP: 1, maxTokens: 4, stopTokenIds: [2] };

/** Completions of one prompt with their rewards, as operations refer to them. */
export interface RewardedGroup {
  recordId: string;
  requestVersion: string;
  completedVersion: string;
  rolloutIds: string[];
}

/** Writes what the other apps would write for one tenant: records, rollouts with rewards, adapters, operations, aliases. */
export class ScriptedLog {
  readonly dataStreamId = newId();
  readonly rolloutsStream = streamId('rollouts', newId());
  private readonly versions = new Map<string, number>();

  constructor(
    private readonly db: TestDatabase,
    readonly tenantId = newId(),
  ) {}

  /** @returns the record's id and its place in the data stream */
  async record(): Promise<{ recordId: string; streamVersion: string }> {
    const recordId = newId();
    const content = { prompt: 'cat>', answer: 'tac', subjectIds: [], metadata: {} };
    const identity = { kind: 'key' as const, key: recordId };
    const streamVersion = await this.append(streamId('data-stream', this.dataStreamId), [
      newEvent('RecordReceived', this.tenantId, { recordId, dataStreamId: this.dataStreamId, identity, content }),
    ]);
    return { recordId, streamVersion };
  }

  /** One prompt's request, completions and rewards, one completion per reward. */
  async rewardedGroup(recordId: string, rewards: readonly number[]): Promise<RewardedGroup> {
    const requestId = newId();
    const about = { requestId, experimentId: null, adapterId: null, opIndex: null };
    const requestVersion = await this.append(this.rolloutsStream, [
      newEvent('RolloutsRequested', this.tenantId, {
        ...about,
        ...BASE,
        purpose: 'training',
        runOrdinal: 0,
        step: 0,
        prompts: [
          {
            promptIndex: 0,
            record: { recordId, dataStreamId: this.dataStreamId, streamVersion: '1' },
            subjectIds: [],
            tokens: int32Tensor([1]),
            seeds: rewards.map((_, i) => String(i)),
          },
        ],
        sampling: SAMPLING,
        reward: null,
      }),
    ]);
    const rollouts = rewards.map((_, sampleIndex) => ({
      rolloutId: rolloutId(requestId, 0, sampleIndex),
      sampleIndex,
      tokens: int32Tensor([2]),
      policyLogprobs: float32Tensor([-1]),
      samplingLogprobs: float32Tensor([-1]),
      stopReason: 'stop' as const,
    }));
    const completedVersion = await this.append(this.rolloutsStream, [
      newEvent('RolloutsCompleted', this.tenantId, { ...about, requestVersion, promptIndex: 0, rollouts }),
    ]);
    await this.append(this.rolloutsStream, [
      newEvent('RewardsAssigned', this.tenantId, {
        requestId,
        requestVersion,
        completedVersion,
        promptIndex: 0,
        experimentId: null,
        source: { verifier: 'exact_match', configDigest: 'c'.repeat(64) },
        rewards: rollouts.map(({ rolloutId: id, sampleIndex }) => ({
          rolloutId: id,
          sampleIndex,
          reward: rewards[sampleIndex]!,
          valid: true,
        })),
      }),
    ]);
    return { recordId, requestVersion, completedVersion, rolloutIds: rollouts.map((r) => r.rolloutId) };
  }

  async adapter(name = `a-${newId()}`): Promise<string> {
    const adapterId = newId();
    const payload = { adapterId, name, spec: SPEC, ...BASE, experimentId: null };
    await this.db.store.append({
      writes: [
        {
          streamId: streamId('adapter', adapterId),
          expected: 'none',
          events: [newEvent('AdapterCreated', this.tenantId, payload)],
        },
      ],
      names: [{ tenantId: this.tenantId, kind: 'adapter', name, id: adapterId }],
      heads: [{ change: 'create', adapterId }],
    });
    // As a worker would hold it.
    await this.db.pool.query('INSERT INTO es.lease (resource, epoch) VALUES ($1, 1)', [`adapter:${adapterId}`]);
    return adapterId;
  }

  /** @returns its operation index. @throws OpIndexConflict where another took the index first */
  async accept(adapterId: string, operation: Operation): Promise<bigint> {
    const head = await this.db.store.adapterHead(adapterId);
    const opIndex = head!.nextOpIndex;
    await this.db.store.append({
      writes: [
        {
          streamId: streamId('adapter', adapterId),
          expected: 'exists',
          events: [
            newEvent('OperationAccepted', this.tenantId, {
              adapterId,
              opIndex: opIndex.toString(),
              operation,
              numericsId: BASE.numericsId,
              origin: { kind: 'client', sessionId: 'script' },
            }),
          ],
        },
      ],
      heads: [{ change: 'accept', adapterId, first: opIndex, last: opIndex }],
    });
    return opIndex;
  }

  async applied(adapterId: string, opIndex: bigint): Promise<void> {
    await this.apply(adapterId, opIndex, [this.outcome(adapterId, opIndex, 'forward_backward')]);
  }

  async failed(adapterId: string, opIndex: bigint): Promise<void> {
    const { metrics: _metrics, outputDigest: _outputDigest, ...common } = appliedPayload(adapterId, opIndex);
    await this.apply(adapterId, opIndex, [
      newEvent('OperationFailed', this.tenantId, { ...common, code: 'not_finite', message: 'the loss is not finite' }),
    ]);
  }

  /** A checkpoint operation's outcome: the operation is applied and the next version exists, in one append. */
  async checkpointed(adapterId: string, opIndex: bigint): Promise<number> {
    const version = (this.versions.get(adapterId) ?? 0) + 1;
    this.versions.set(adapterId, version);
    const file = { digest: 'f'.repeat(64), size: 1, mediaType: 'application/octet-stream' };
    await this.apply(adapterId, opIndex, [
      this.outcome(adapterId, opIndex, 'checkpoint'),
      newEvent('AdapterCheckpointed', this.tenantId, {
        adapterId,
        version,
        opIndex: opIndex.toString(),
        parentVersion: version === 1 ? null : version - 1,
        label: null,
        spec: SPEC,
        ...BASE,
        weightsDigest: 'e'.repeat(64),
        stateDigest: 'd'.repeat(64),
        weightsFile: file,
        configFile: file,
        stateFile: file,
        workerId: adapterId,
        leaseEpoch: '1',
      }),
    ]);
    return version;
  }

  /** Accepts and applies a checkpoint. @returns the new version */
  async version(adapterId: string): Promise<number> {
    return this.checkpointed(adapterId, await this.accept(adapterId, { kind: 'checkpoint', label: null }));
  }

  /** Accepts and applies a forward-backward. @returns its operation index */
  async train(adapterId: string, ...datums: (RolloutDatum | InlineDatum)[]): Promise<bigint> {
    const opIndex = await this.accept(adapterId, training(...datums));
    await this.applied(adapterId, opIndex);
    return opIndex;
  }

  /** @returns when and where the move was recorded */
  async moveAlias(adapterId: string, alias: string, version: number, previousVersion: number | null, reason = '') {
    const stream = streamId('alias', adapterId);
    const at = await this.append(stream, [
      newEvent('AliasMoved', this.tenantId, { adapterId, alias, version, previousVersion, reason }),
    ]);
    const [event] = await this.db.store.readStream(stream, { after: BigInt(at) - 1n, limit: 1 });
    return event!;
  }

  rolloutDatum(group: RewardedGroup, advantages: readonly number[]): RolloutDatum {
    return {
      source: 'rollouts',
      streamId: this.rolloutsStream,
      requestVersion: group.requestVersion,
      completedVersion: group.completedVersion,
      promptIndex: 0,
      recordId: group.recordId,
      subjectIds: [],
      branches: group.rolloutIds.map((id, sampleIndex) => ({ rolloutId: id, sampleIndex })),
      advantages: float32Tensor(advantages),
    };
  }

  /** @returns stream version of the last event */
  async append(stream: string, events: AnyNewEvent[]): Promise<string> {
    const result = await this.db.store.append({ writes: [{ streamId: stream, expected: 'any', events }] });
    return (result as Extract<AppendResult, { outcome: 'appended' }>).streams[0]!.lastVersion.toString();
  }

  private async apply(adapterId: string, opIndex: bigint, events: AnyNewEvent[]): Promise<void> {
    await this.db.store.append({
      writes: [{ streamId: streamId('adapter', adapterId), expected: 'exists', events }],
      heads: [{ change: 'apply', adapterId, opIndex, leaseEpoch: 1n }],
    });
  }

  private outcome(adapterId: string, opIndex: bigint, kind: 'forward_backward' | 'checkpoint'): AnyNewEvent {
    return newEvent('OperationApplied', this.tenantId, { ...appliedPayload(adapterId, opIndex), kind });
  }
}

export function training(...datums: (RolloutDatum | InlineDatum)[]): Operation {
  return { kind: 'forward_backward', loss: { name: 'importance_sampling' }, datums };
}

/** Supervised data of a client, from a record or from nowhere. */
export function inlineDatum(recordId: string | null): InlineDatum {
  return {
    source: 'inline',
    recordId,
    subjectIds: [],
    prompt: int32Tensor([1]),
    branches: [{ tokens: int32Tensor([2]), weights: float32Tensor([1]), logprobs: null, advantages: null }],
  };
}

function appliedPayload(adapterId: string, opIndex: bigint): PayloadOf<'OperationApplied'> {
  return {
    adapterId,
    opIndex: opIndex.toString(),
    kind: 'forward_backward',
    workerId: adapterId,
    leaseEpoch: '1',
    stateDigest: 'd'.repeat(64),
    outputDigest: null,
    metrics: { lossSum: null, tokens: null, gradNorm: null, step: null },
  };
}
