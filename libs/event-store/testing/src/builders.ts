import {
  newId,
  streamId,
  type AnyNewEvent,
  type AppendItem,
  type EventType,
  type ExpectedVersion,
  type NewEvent,
  type PayloadOf,
} from '#hotbed/contracts';

/** Fixed, so that a failing test reads the same each time; order comes from the log. */
const OCCURRED_AT_MS = 1_764_547_200_000;

/** An event with everything but type, tenant and payload filled in. */
export function newEvent<T extends EventType>(
  type: T,
  tenantId: string,
  payload: PayloadOf<T>,
  overrides: Partial<NewEvent<T>> = {},
): AnyNewEvent {
  return {
    eventId: newId(),
    type,
    tenantId,
    occurredAtMs: OCCURRED_AT_MS,
    actor: 'test',
    correlationId: 'test',
    causationId: null,
    payload,
    ...overrides,
  } as AnyNewEvent;
}

export function aRecordReceived(
  tenantId: string,
  dataStreamId: string,
  content: Partial<PayloadOf<'RecordReceived'>['content']> = {},
  overrides: Partial<NewEvent<'RecordReceived'>> = {},
): AnyNewEvent {
  const recordId = newId();
  return newEvent(
    'RecordReceived',
    tenantId,
    {
      recordId,
      dataStreamId,
      identity: { kind: 'key', key: recordId },
      content: { prompt: 'cat', answer: 'tac', subjectIds: [], metadata: {}, ...content },
    },
    overrides,
  );
}

/** One item that appends `count` records to a data stream. */
export function aStreamOfRecords(
  tenantId: string,
  dataStreamId: string,
  count = 1,
  expected: ExpectedVersion = 'any',
): AppendItem {
  const events = Array.from({ length: count }, () => aRecordReceived(tenantId, dataStreamId));
  return { writes: [{ streamId: streamId('data-stream', dataStreamId), expected, events }] };
}
