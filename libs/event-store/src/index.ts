export { createPool } from './pool';
export { Queries } from './queries';
export { dataSource, migrate } from './migrate';
export { PgEventStore } from './pg-event-store';
export { PgTransactions } from './unit-of-work';
export { PgConsumerLane, type DeadLetterEntry } from './consumer-lane';
export { WorkList, type OpenRequest } from './work-list';
export { Leases, type Lease, type LeasesOptions } from './leases';
export { LogListener } from './log-listener';
export { RelayCursors, type RelayCursor } from './relay-cursors';
export { ProjectionRunner, type Projection, type ProjectionRunnerOptions } from './projection-runner';
export { FileBlobStore, type FileBlobStoreOptions } from './file-blob-store';
export { toDomainError } from './database-errors';
export { verifyLog, type VerifyOptions } from './verify/verify-log';
export { blobFolder } from './verify/blob-folder';
export { readLogRows, verifyDatabase } from './verify/verify-database';
export {
  parseSeenHead,
  type LogProblem,
  type LogProblemKind,
  type LogRow,
  type SeenHead,
  type VerifyResult,
} from './verify/log-row';
