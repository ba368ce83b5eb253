import type { z } from 'zod';
import * as adapter from './events/adapter.events';
import * as dataStream from './events/data-stream.events';
import * as experiment from './events/experiment.events';
import * as registry from './events/registry.events';
import * as rollouts from './events/rollouts.events';
import * as system from './events/system.events';

export const APPS = ['gateway', 'ingest', 'orchestrator', 'rewarder', 'gpu-worker', 'registry', 'relay'] as const;
export type AppName = (typeof APPS)[number];

export const CATEGORIES = [
  'data-stream',
  'experiment',
  'rollouts',
  'adapter',
  'alias',
  'tenant',
  'worker',
  'relay',
] as const;
export type Category = (typeof CATEGORIES)[number];

/** JetStream stream that carries a category. Written by the relay alone. */
export const JETSTREAM_OF = {
  'data-stream': 'HOTBED_DATA',
  experiment: 'HOTBED_EXPERIMENT',
  rollouts: 'HOTBED_ROLLOUT',
  adapter: 'HOTBED_ADAPTER',
  alias: 'HOTBED_REGISTRY',
  tenant: 'HOTBED_REGISTRY',
  worker: 'HOTBED_SYSTEM',
  relay: 'HOTBED_SYSTEM',
} as const satisfies Record<Category, string>;
export type JetStreamName = (typeof JETSTREAM_OF)[Category];

interface EventRow {
  category: Category;
  /** The only apps that append it (AdapterCreated and OperationAccepted go through one pure decider). */
  owners: readonly AppName[];
  schemaVersion: number;
  schema: z.ZodType;
}

function row<S extends z.ZodType>(category: Category, owners: readonly AppName[], schema: S) {
  return { category, owners, schemaVersion: 1, schema } satisfies EventRow;
}

/** The one table: event type -> category -> owner -> schema. A stream id is `<category>:<key>`. */
export const EVENTS = {
  DataStreamCreated: row('data-stream', ['ingest'], dataStream.dataStreamCreated),
  RecordReceived: row('data-stream', ['ingest'], dataStream.recordReceived),
  RecordRejected: row('data-stream', ['ingest'], dataStream.recordRejected),
  TrainingTriggered: row('data-stream', ['ingest'], dataStream.trainingTriggered),

  ExperimentCreated: row('experiment', ['orchestrator'], experiment.experimentCreated),
  ExperimentStarted: row('experiment', ['orchestrator'], experiment.experimentStarted),
  ExperimentPaused: row('experiment', ['orchestrator'], experiment.experimentPaused),
  ExperimentResumed: row('experiment', ['orchestrator'], experiment.experimentResumed),
  ExperimentCompleted: row('experiment', ['orchestrator'], experiment.experimentCompleted),
  ExperimentFailed: row('experiment', ['orchestrator'], experiment.experimentFailed),
  ExperimentCancelled: row('experiment', ['orchestrator'], experiment.experimentCancelled),
  TrainingRunStarted: row('experiment', ['orchestrator'], experiment.trainingRunStarted),
  TrainingStepCompleted: row('experiment', ['orchestrator'], experiment.trainingStepCompleted),
  TrainingRunCompleted: row('experiment', ['orchestrator'], experiment.trainingRunCompleted),

  RolloutsRequested: row('rollouts', ['orchestrator'], rollouts.rolloutsRequested),
  RolloutsCompleted: row('rollouts', ['gpu-worker'], rollouts.rolloutsCompleted),
  RolloutsFailed: row('rollouts', ['gpu-worker'], rollouts.rolloutsFailed),
  RewardsAssigned: row('rollouts', ['rewarder'], rollouts.rewardsAssigned),
  RewardsFailed: row('rollouts', ['rewarder'], rollouts.rewardsFailed),

  AdapterCreated: row('adapter', ['orchestrator', 'gateway'], adapter.adapterCreated),
  OperationAccepted: row('adapter', ['orchestrator', 'gateway'], adapter.operationAccepted),
  OperationApplied: row('adapter', ['gpu-worker'], adapter.operationApplied),
  OperationFailed: row('adapter', ['gpu-worker'], adapter.operationFailed),
  AdapterCheckpointed: row('adapter', ['gpu-worker'], adapter.adapterCheckpointed),

  AliasMoved: row('alias', ['orchestrator'], registry.aliasMoved),
  TenantCreated: row('tenant', ['registry'], registry.tenantCreated),
  ApiKeyIssued: row('tenant', ['registry'], registry.apiKeyIssued),
  ApiKeyRevoked: row('tenant', ['registry'], registry.apiKeyRevoked),

  WorkerStarted: row('worker', ['gpu-worker'], system.workerStarted),
  BaseModelLoaded: row('worker', ['gpu-worker'], system.baseModelLoaded),
  LeaseClaimed: row('worker', ['gpu-worker'], system.leaseClaimed),
  WorkerStopped: row('worker', ['gpu-worker'], system.workerStopped),
  RelayRewound: row('relay', ['relay'], system.relayRewound),
} as const;

export type EventType = keyof typeof EVENTS;
export type PayloadOf<T extends EventType> = z.infer<(typeof EVENTS)[T]['schema']>;

export const EVENT_TYPES = Object.keys(EVENTS) as EventType[];

export function isEventType(type: string): type is EventType {
  return Object.hasOwn(EVENTS, type);
}
