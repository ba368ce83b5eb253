export {
  applyOperation,
  applyPrepared,
  engineLoss,
  isDeterministicFailure,
  prepareOperation,
  type OperationMetrics,
  type OperationResult,
  type PlacedOperation,
  type PreparedOperation,
} from './apply-operation';
export {
  catchUp,
  evolve,
  historyOf,
  readHistory,
  readOperations,
  recordOf,
  recordOutcome,
  weightsIndex,
  type AdapterHistory,
  type OperationOutcome,
  type OperationRecord,
} from './adapter-history';
export { datumsOf, type ForwardBackward } from './datums';
export type { EventReads } from './event-reads';
export { assertSameBase, foldAdapter, type FoldRequest, type FoldResult, type FoldStart } from './fold-adapter';
export { outputDigest } from './output-digest';
