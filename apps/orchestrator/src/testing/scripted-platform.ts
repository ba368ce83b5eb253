import { createHash } from 'node:crypto';
import { resolve } from 'node:path';
import {
  float32Tensor,
  int32Tensor,
  newId,
  parseInput,
  rolloutId,
  streamId,
  COMMANDS,
  type AnyNewEvent,
  type AnyStoredEvent,
  type CommandInput,
  type EventType,
  type ExperimentSummary,
  type LaneHandler,
  type PayloadOf,
  type RolloutsRequested,
} from '#hotbed/contracts';
import { newEvent, type TestDatabase } from '#hotbed/event-store/testing';
import { Bases } from '#hotbed/models';
import { ControlExperimentHandler } from '../experiment/control-experiment.handler';
import { CreateExperimentHandler } from '../experiment/create-experiment.handler';
import { ExperimentProcess } from '../experiment/experiment-process';
import { operationsLane, rolloutsLane, triggersLane } from '../experiment/experiment.lanes';
import { RecordWindows } from '../records/record-windows';

const SEEDLING = resolve(__dirname, '../../../../models/seedling');
const DIGEST = 'd'.repeat(64);

/** Rewards of one prompt's completions, by sample index. A function of the request alone, as a worker's answers are. */
export type RewardScript = (request: RolloutsRequested, promptIndex: number) => number[];

/** Half of the completions right, by seed: every group has variance unless all seeds agree. */
export const bySeed: RewardScript = (request, promptIndex) =>
  (request.prompts[promptIndex]?.seeds ?? []).map((seed) => Number(BigInt(seed) % 2n));

/**
 * The orchestrator between an event log and scripted neighbours: it appends what ingest, workers and rewarder would,
 * and delivers events to the lanes as the broker would.
 */
export class ScriptedPlatform {
  readonly tenantId = newId();
  readonly dataStreamId = newId();
  /** Whose commands these are. */
  readonly actor = `key:${newId()}`;
  rewards: RewardScript = bySeed;
  /** Called before the transaction of a lane commits: throw to crash there. */
  beforeCommit: () => void = () => undefined;
  process: ExperimentProcess;
  readonly bases: Bases;

  constructor(readonly db: TestDatabase) {
    this.bases = new Bases(db.store, SEEDLING);
    this.process = this.newProcess();
  }

  /** What a restart of the process gives: nothing of the old one is left. */
  restart(): void {
    this.process = this.newProcess();
  }

  get creating(): CreateExperimentHandler {
    return new CreateExperimentHandler(this.db.store, this.db.transactions, this.bases, null);
  }

  get control(): ControlExperimentHandler {
    return new ControlExperimentHandler(this.db.store, this.db.transactions, this.process, this.bases);
  }

  /** A base, a data stream with `records` records. */
  async prepare(records: number): Promise<void> {
    const { tokenizerDigest } = await this.bases.openFolder();
    await this.append(streamId('worker', newId()), [
      this.event('BaseModelLoaded', {
        workerId: newId(),
        name: 'seedling',
        baseDigest: DIGEST,
        numericsId: 'f32-1',
        architecture: 'llama',
        parameterCount: 1,
        contextLength: 64,
        tokenizerSize: 56,
        tokenizerDigest,
        kernels: 'scalar',
        threads: 1,
      }),
    ]);
    const stream = { dataStreamId: this.dataStreamId, name: 'words' };
    await this.db.store.append({
      writes: [
        {
          streamId: streamId('data-stream', this.dataStreamId),
          expected: 'none',
          events: [this.event('DataStreamCreated', stream)],
        },
      ],
      names: [{ tenantId: this.tenantId, kind: 'data-stream', name: 'words', id: this.dataStreamId }],
    });
    await this.addRecords(records);
  }

  async addRecords(count: number, prompt: string | null = null): Promise<void> {
    const events = Array.from({ length: count }, (_, i) => {
      const recordId = newId();
      return this.event('RecordReceived', {
        recordId,
        dataStreamId: this.dataStreamId,
        identity: { kind: 'key', key: recordId },
        content: {
          prompt: prompt ?? `${WORDS[i % WORDS.length]}>`,
          answer: 'cba',
          subjectIds: [`subject-${i}`],
          metadata: {},
        },
      });
    });
    await this.append(streamId('data-stream', this.dataStreamId), events);
  }

  create(settings: Partial<CommandInput<'orchestrator', 'create-experiment'>> = {}): Promise<ExperimentSummary> {
    const request = parseInput(COMMANDS.orchestrator['create-experiment'].request, {
      name: 'reverse',
      dataStream: 'words',
      reward: { verifier: 'exact_match', config: {} },
      steps: 4,
      promptsPerStep: 3,
      samplesPerPrompt: 4,
      maxTokens: 8,
      checkpointEverySteps: 2,
      ...settings,
    });
    return this.creating.create(this.tenantId, request, this.actor);
  }

  async trigger(experimentId: string, from: bigint, to: bigint): Promise<void> {
    await this.append(streamId('data-stream', this.dataStreamId), [
      this.event('TrainingTriggered', {
        triggerId: newId(),
        experimentId,
        dataStreamId: this.dataStreamId,
        from: from.toString(),
        to: to.toString(),
        records: Number(to - from) + 1,
        cause: 'manual',
      }),
    ]);
  }

  /** Delivers and answers until nothing happens any more. */
  async runUntilQuiet(experiment: ExperimentSummary): Promise<void> {
    for (let position = -1n; ;) {
      await this.deliver(experiment);
      await this.answer(experiment);
      const head = (await this.db.store.head()).position;
      if (head === position) return;
      position = head;
    }
  }

  /** Brings every lane up to the newest event of its stream. */
  async deliver(experiment: ExperimentSummary): Promise<void> {
    await this.advance('triggers', streamId('data-stream', this.dataStreamId), triggersLane(this.process));
    await this.advance('rewards', streamId('rollouts', experiment.experimentId), rolloutsLane(this.process));
    await this.advance(
      'versions',
      streamId('adapter', experiment.adapterId),
      operationsLane(this.process, this.db.store),
    );
  }

  /** Does the workers' and the rewarder's next pieces of work. */
  async answer(experiment: ExperimentSummary): Promise<void> {
    await this.answerRollouts(streamId('rollouts', experiment.experimentId));
    await this.applyCheckpoints(experiment.adapterId);
  }

  /** Answers the sample requests of a stream; nobody rewards them. */
  answerSamples(stream: string): Promise<void> {
    return this.answerRollouts(stream);
  }

  async eventsOf<T extends EventType>(stream: string, type: T): Promise<PayloadOf<T>[]> {
    const events = await this.db.store.readStream(stream);
    return events.filter((event) => event.type === type).map((event) => event.payload as PayloadOf<T>);
  }

  event<T extends EventType>(type: T, payload: PayloadOf<T>): AnyNewEvent {
    return newEvent(type, this.tenantId, payload);
  }

  async append(stream: string, events: AnyNewEvent[]): Promise<void> {
    await this.db.store.append({ writes: [{ streamId: stream, expected: 'any', events }] });
  }

  /** Records that an operation failed, under a lease as a worker would hold it. */
  async failOperation(adapterId: string, opIndex: string, code: string, message: string): Promise<void> {
    await this.db.pool.query('INSERT INTO es.lease (resource, epoch) VALUES ($1, 1)', [`adapter:${adapterId}`]);
    const failed = this.event('OperationFailed', {
      adapterId,
      opIndex,
      kind: 'forward_backward',
      workerId: newId(),
      leaseEpoch: '1',
      stateDigest: DIGEST,
      code,
      message,
    });
    await this.db.store.append({
      writes: [{ streamId: streamId('adapter', adapterId), expected: 'exists', events: [failed] }],
      heads: [{ change: 'apply', adapterId, opIndex: BigInt(opIndex), leaseEpoch: 1n }],
    });
  }

  private newProcess(): ExperimentProcess {
    return new ExperimentProcess(this.db.store, new RecordWindows(this.db.store, this.bases));
  }

  async advance(consumer: string, stream: string, handle: LaneHandler): Promise<void> {
    const version = (await this.db.store.readStream(stream)).at(-1)?.streamVersion;
    if (version === undefined) return;
    await this.db.lanes.advance(consumer, stream, version, async (events, uow) => {
      await handle(events, uow);
      this.beforeCommit();
    });
  }

  private async answerRollouts(stream: string): Promise<void> {
    const events = await this.db.store.readStream(stream);
    const answered = new Set(events.flatMap((e) => (e.type === 'RewardsAssigned' ? [e.payload.requestId] : [])));
    for (const requested of events) {
      if (requested.type !== 'RolloutsRequested' || answered.has(requested.payload.requestId)) continue;
      let version = (events.at(-1)?.streamVersion ?? 0n) + 1n;
      const own: AnyNewEvent[] = [];
      for (const { promptIndex } of requested.payload.prompts) {
        own.push(...this.answersOf(requested.payload, promptIndex, requested.streamVersion, version));
        version += 2n;
      }
      await this.append(stream, own);
      return;
    }
  }

  private answersOf(request: RolloutsRequested, promptIndex: number, requestVersion: bigint, version: bigint) {
    const { requestId, experimentId, adapterId, opIndex } = request;
    const about = { requestId, requestVersion: requestVersion.toString(), promptIndex, experimentId };
    const rewards = this.rewards(request, promptIndex);
    const ids = rewards.map((_, sampleIndex) => ({
      rolloutId: rolloutId(requestId, promptIndex, sampleIndex),
      sampleIndex,
    }));
    return [
      this.event('RolloutsCompleted', {
        ...about,
        adapterId,
        opIndex,
        rollouts: ids.map((id) => ({
          ...id,
          tokens: int32Tensor([4, 5, 2]),
          policyLogprobs: float32Tensor([-1, -1, -1]),
          samplingLogprobs: float32Tensor([-1, -1, -1]),
          stopReason: 'stop' as const,
        })),
      }),
      this.event('RewardsAssigned', {
        ...about,
        completedVersion: version.toString(),
        sampledTokens: 3 * rewards.length,
        source: { verifier: 'exact_match', configDigest: DIGEST },
        rewards: ids.map((id, i) => ({ ...id, reward: rewards[i] ?? NaN, valid: true })),
      }),
    ];
  }

  private async applyCheckpoints(adapterId: string): Promise<void> {
    const stream = streamId('adapter', adapterId);
    const events = await this.db.store.readStream(stream);
    const saved = new Set(events.flatMap((e) => (e.type === 'AdapterCheckpointed' ? [e.payload.opIndex] : [])));
    const [created] = events;
    if (created?.type !== 'AdapterCreated') return;
    for (const event of events) {
      if (event.type !== 'OperationAccepted' || event.payload.operation.kind !== 'checkpoint') continue;
      if (saved.has(event.payload.opIndex)) continue;
      await this.append(stream, [this.checkpointed(created, event.payload.opIndex, saved.size + 1)]);
      return;
    }
  }

  private checkpointed(created: Extract<AnyStoredEvent, { type: 'AdapterCreated' }>, opIndex: string, version: number) {
    const { adapterId, spec, baseDigest, numericsId } = created.payload;
    const file = { digest: DIGEST, size: 1, mediaType: 'application/octet-stream' };
    return this.event('AdapterCheckpointed', {
      adapterId,
      version,
      opIndex,
      parentVersion: version === 1 ? null : version - 1,
      label: null,
      spec,
      baseDigest,
      numericsId,
      weightsDigest: DIGEST,
      stateDigest: createHash('sha256').update(opIndex).digest('hex'),
      weightsFile: file,
      configFile: file,
      stateFile: file,
      workerId: newId(),
      leaseEpoch: '1',
    });
  }
}

const WORDS = ['abc', 'dog', 'cat', 'sun', 'hat', 'map', 'zoo', 'pen', 'fig', 'jar'];
