export {
  DomainError,
  ERROR_KINDS,
  IdempotencyConflict,
  InvalidInput,
  LeaseLost,
  NameTaken,
  NotFound,
  OpIndexConflict,
  Unavailable,
  VersionConflict,
  type DomainErrorOptions,
  type ErrorKind,
  type FieldProblem,
} from './errors';
export { fromWireError, toWireError, wireErrorSchema, type WireError } from './wire-error';
export { parseInput } from './parse-input';
export {
  SYSTEM_TENANT_ID,
  derivedId,
  digestSchema,
  idSchema,
  nameSchema,
  newId,
  rolloutId,
  rolloutSeed,
  u64Schema,
} from './ids';
export { canonicalJson, assertStorable } from './canonical-json';
export { float32Tensor, int32Tensor, tensorSchema, toFloat32Array, toInt32Array, type Tensor } from './tensor';
export { PAYLOAD_LIMIT_BYTES, blobRefSchema, type BlobRef } from './blob-ref';
export { TARGET_MODULE_NAMES, adapterSpecSchema, baseIdentitySchema, type AdapterSpecPayload } from './adapter-spec';
export {
  adamSchema,
  datumSchema,
  LOSS_BRANCH_FIELDS,
  lossSchema,
  operationSchema,
  takesAdvantages,
  type AdamPayload,
  type BranchField,
  type DatumPayload,
  type InlineDatum,
  type LossPayload,
  type Operation,
  type OperationKind,
  type RolloutDatum,
} from './operation';
export { LONGEST_STOP_STRING, MOST_STOP_STRINGS, samplingSchema, type SamplingPayload } from './sampling';
export { recordContentSchema, type RecordContent, type RecordIdentity } from './events/data-stream.events';
export {
  WINDOW_RECORDS,
  grpoSchema,
  rewardSchema,
  triggerSchema,
  type ExperimentCreated,
  type GrpoPayload,
  type RewardPayload,
  type TriggerPayload,
} from './events/experiment.events';
export type { RewardsAssigned, Rollout, RolloutsCompleted, RolloutsRequested } from './events/rollouts.events';
export type { AdapterCheckpointed, AdapterCreated, OperationAccepted, OperationApplied } from './events/adapter.events';
export { API_KEY_ROLES, type AliasMoved } from './events/registry.events';
export {
  APPS,
  CATEGORIES,
  EVENTS,
  EVENT_TYPES,
  JETSTREAM_OF,
  isEventType,
  type AppName,
  type Category,
  type EventType,
  type JetStreamName,
  type PayloadOf,
} from './event-catalog';
export { aliasStreamId, parseStreamId, streamId } from './stream-id';
export { eventFilter, eventSubject, ingestStreamName, ingestSubject, rpcSubject } from './subjects';
export type { AnyNewEvent, AnyStoredEvent, EventHeader, NewEvent, StoredEvent } from './stored-event';
export type {
  AdapterHeadChange,
  AppendItem,
  AppendResult,
  AppendedStream,
  BlobStore,
  ConsumerLane,
  DeadLetter,
  ResumedLane,
  EventStore,
  ExpectedVersion,
  LaneHandler,
  LogHead,
  NameClaim,
  RequestChange,
  StreamWrite,
  Transactions,
  UnitOfWork,
} from './ports';
export {
  COMMANDS,
  type CommandApp,
  type CommandInput,
  type CommandName,
  type CommandReply,
  type CommandRequest,
} from './commands/catalog';
export { pageSchema, refSchema, type Page } from './commands/paging';
export type { DataStreamView } from './commands/ingest.commands';
export {
  EXPERIMENT_STATES,
  STALL_REASONS,
  createExperimentRequest,
  type CreateExperimentRequest,
  type ExperimentSummary,
  type ExperimentView,
} from './commands/orchestrator.commands';
export { asOfSchema, type AdapterVersionView, type AdapterView } from './commands/registry.commands';
