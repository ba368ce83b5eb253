import type { OperationResult, PlacedOperation } from '#hotbed/fold';
import {
  newId,
  streamId,
  type AdapterCheckpointed,
  type AnyNewEvent,
  type AppendItem,
  type EventType,
  type NewEvent,
  type PayloadOf,
} from '#hotbed/contracts';

/** Who writes an adapter's outcomes, and under which lease. */
export interface Writer {
  workerId: string;
  adapterId: string;
  tenantId: string;
  leaseEpoch: bigint;
}

/** One append for one outcome: the adapter's head moves with it, and a version exists from the same moment. */
export function outcomeItem(
  writer: Writer,
  placed: PlacedOperation,
  result: OperationResult,
  version: AdapterCheckpointed | null,
  nowMs: number,
): AppendItem {
  const events: AnyNewEvent[] = [outcomeEvent(writer, placed, result, nowMs)];
  if (version !== null) events.push(caused(placed, writer, 'AdapterCheckpointed', version, nowMs));
  return {
    writes: [{ streamId: streamId('adapter', writer.adapterId), expected: 'exists', events }],
    heads: [{ change: 'apply', adapterId: writer.adapterId, opIndex: placed.opIndex, leaseEpoch: writer.leaseEpoch }],
  };
}

function outcomeEvent(writer: Writer, placed: PlacedOperation, result: OperationResult, nowMs: number): AnyNewEvent {
  const common = {
    adapterId: writer.adapterId,
    opIndex: placed.opIndex.toString(),
    kind: placed.operation.kind,
    workerId: writer.workerId,
    leaseEpoch: writer.leaseEpoch.toString(),
    stateDigest: result.stateDigest,
  };
  if (result.outcome === 'failed') {
    const { code, message } = result;
    return caused(placed, writer, 'OperationFailed', { ...common, code, message }, nowMs);
  }
  const { outputDigest, metrics } = result;
  return caused(placed, writer, 'OperationApplied', { ...common, outputDigest, metrics }, nowMs);
}

function caused<T extends EventType>(
  placed: PlacedOperation,
  writer: Writer,
  type: T,
  payload: PayloadOf<T>,
  nowMs: number,
): NewEvent<T> & AnyNewEvent {
  const event: NewEvent<T> = {
    eventId: newId(),
    type,
    tenantId: writer.tenantId,
    occurredAtMs: nowMs,
    actor: 'app:gpu-worker',
    correlationId: placed.correlationId,
    causationId: placed.acceptedEventId,
    payload,
  };
  return event as NewEvent<T> & AnyNewEvent;
}
