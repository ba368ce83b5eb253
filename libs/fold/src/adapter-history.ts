import {
  DomainError,
  NotFound,
  streamId,
  type AdapterCheckpointed,
  type AdapterCreated,
  type AnyStoredEvent,
  type OperationKind,
  type StoredEvent,
} from '#hotbed/contracts';
import type { PlacedOperation } from './apply-operation';
import type { EventReads } from './event-reads';

export interface OperationOutcome {
  outcome: 'applied' | 'failed';
  /** Of state(opIndex). */
  stateDigest: string;
  outputDigest: string | null;
}

/** What the log recorded of one operation; the operation itself is read again when it is needed. */
export interface OperationRecord {
  kind: OperationKind;
  /** Stream version of OperationAccepted. */
  acceptedVersion: bigint;
  /** null until it has been applied or has failed. */
  outcome: OperationOutcome | null;
}

/** What an adapter's stream says, without the operations' data. `operations[n - 1]` is operation n. */
export interface AdapterHistory {
  adapterId: string;
  tenantId: string;
  created: AdapterCreated;
  operations: OperationRecord[];
  /** In order of version. */
  checkpoints: AdapterCheckpointed[];
  /** Highest operation index with an outcome. */
  applied: bigint;
  /** Last event taken in. */
  streamVersion: bigint;
  /** Accepted operations without an outcome, in order. */
  pending: PlacedOperation[];
}

const PAGE = 500;

/** @throws NotFound when no such adapter was created. */
export async function readHistory(events: EventReads, adapterId: string): Promise<AdapterHistory> {
  const [first] = await events.readStream(streamId('adapter', adapterId), { limit: 1 });
  if (first?.type !== 'AdapterCreated') throw new NotFound('adapter', adapterId);
  const history = historyOf(first.payload, first.tenantId);
  await catchUp(history, events);
  return history;
}

/** Takes in what was appended since. Returns whether there was anything. */
export async function catchUp(history: AdapterHistory, events: EventReads): Promise<boolean> {
  const before = history.streamVersion;
  for (;;) {
    const page = await events.readStream(streamId('adapter', history.adapterId), {
      after: history.streamVersion,
      limit: PAGE,
    });
    for (const event of page) evolve(history, event);
    if (page.length < PAGE) return history.streamVersion > before;
  }
}

export function historyOf(created: AdapterCreated, tenantId: string): AdapterHistory {
  return {
    adapterId: created.adapterId,
    tenantId,
    created,
    operations: [],
    checkpoints: [],
    applied: 0n,
    streamVersion: 1n,
    pending: [],
  };
}

/** Takes in the next event of the adapter's stream. */
export function evolve(history: AdapterHistory, event: AnyStoredEvent): void {
  switch (event.type) {
    case 'OperationAccepted':
      assertNumerics(history, event.payload.numericsId, event.payload.opIndex);
      history.operations.push({
        kind: event.payload.operation.kind,
        acceptedVersion: event.streamVersion,
        outcome: null,
      });
      history.pending.push(placedOperation(event));
      break;
    case 'OperationApplied':
    case 'OperationFailed': {
      const opIndex = BigInt(event.payload.opIndex);
      recordOutcome(history, opIndex, {
        outcome: event.type === 'OperationApplied' ? 'applied' : 'failed',
        stateDigest: event.payload.stateDigest,
        outputDigest: event.type === 'OperationApplied' ? event.payload.outputDigest : null,
      });
      break;
    }
    case 'AdapterCheckpointed':
      history.checkpoints.push(event.payload);
      break;
    default:
      break;
  }
  history.streamVersion = event.streamVersion;
}

/** Takes in an outcome that has been committed; its event may be taken in again later. */
export function recordOutcome(history: AdapterHistory, opIndex: bigint, outcome: OperationOutcome): void {
  recordOf(history, opIndex).outcome = outcome;
  if (opIndex <= history.applied) return;
  history.applied = opIndex;
  history.pending = history.pending.filter((operation) => operation.opIndex > opIndex);
}

export function recordOf(history: AdapterHistory, opIndex: bigint): OperationRecord {
  const record = history.operations[Number(opIndex) - 1];
  if (record === undefined) throw new NotFound('operation', `${history.adapterId}#${opIndex}`);
  return record;
}

/**
 * The operation that gave state(opIndex) its A and B: the last optimizer step applied at or before it, else 0. All
 * states from there up to the next optimizer step sample the same tokens.
 */
export function weightsIndex(history: AdapterHistory, opIndex: bigint): bigint {
  for (let n = opIndex; n > 0n; n--) {
    const record = recordOf(history, n);
    if (record.kind === 'optim_step' && record.outcome?.outcome !== 'failed') return n;
  }
  return 0n;
}

/** Operations `first..last` (inclusive) in order, read from the log page by page. */
export async function* readOperations(
  history: AdapterHistory,
  events: EventReads,
  first: bigint,
  last: bigint,
): AsyncGenerator<PlacedOperation> {
  if (first > last) return;
  let after = recordOf(history, first).acceptedVersion - 1n;
  const upTo = recordOf(history, last).acceptedVersion;
  while (after < upTo) {
    const page = await events.readStream(streamId('adapter', history.adapterId), { after, upTo, limit: PAGE });
    const end = page.at(-1);
    if (end === undefined) return;
    for (const event of page) if (event.type === 'OperationAccepted') yield placedOperation(event);
    after = end.streamVersion;
  }
}

function placedOperation(event: StoredEvent<'OperationAccepted'>): PlacedOperation {
  return {
    opIndex: BigInt(event.payload.opIndex),
    operation: event.payload.operation,
    acceptedAt: event.globalPosition,
    acceptedEventId: event.eventId,
    correlationId: event.correlationId,
  };
}

function assertNumerics(history: AdapterHistory, numericsId: string, opIndex: string): void {
  if (numericsId === history.created.numericsId) return;
  throw new DomainError(
    'EngineFault',
    'numerics_mismatch',
    `operation ${opIndex} of adapter ${history.adapterId} was accepted for numerics ${numericsId}, the adapter has ` +
      `${history.created.numericsId}; replay refuses to mix them`,
  );
}
