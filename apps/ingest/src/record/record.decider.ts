import {
  InvalidInput,
  type AppendItem,
  type FieldProblem,
  type RecordContent,
  type RecordIdentity,
  assertStorable,
  parseInput,
  recordContentSchema,
  streamId,
} from '#hotbed/contracts';

/** A record as it arrived, not yet checked. */
export interface ArrivedRecord {
  tenantId: string;
  dataStreamId: string;
  identity: RecordIdentity;
  /** What the producer sent: anything. */
  content: unknown;
  actor: string;
  /** What is wrong with it whatever its content says. */
  problem?: FieldProblem;
}

/** What the clock and the id source gave for one record. */
export interface RecordStamp {
  recordId: string;
  eventId: string;
  nowMs: number;
}

/** Largest record, as JSON bytes. Larger data belongs into files that a record names. */
export const RECORD_LIMIT_BYTES = 128 * 1024;

/** @param root how the record is called in messages, for example `records[3].content`. @throws InvalidInput */
export function checkRecord(content: unknown, root: string): RecordContent {
  const record = parseInput(recordContentSchema, content, root);
  assertStorable(record, root);
  const bytes = Buffer.byteLength(JSON.stringify(record));
  if (bytes > RECORD_LIMIT_BYTES) {
    throw new InvalidInput([{ path: root, message: `is ${bytes} bytes; the limit is ${RECORD_LIMIT_BYTES}` }]);
  }
  return record;
}

/** A record that passed its check, as one append. The identity makes it happen once, whatever its content says. */
export function receive(arrived: ArrivedRecord, content: RecordContent, stamp: RecordStamp): AppendItem {
  return appendOnce(arrived, stamp, 'exists', 'RecordReceived', {
    recordId: stamp.recordId,
    dataStreamId: arrived.dataStreamId,
    identity: arrived.identity,
    content,
  });
}

/** A record from the broker that failed its check: its producer waits for no answer, so the refusal is recorded. */
export function reject(
  arrived: ArrivedRecord,
  error: InvalidInput,
  stamp: RecordStamp,
  expected: 'exists' | 'any' = 'exists',
): AppendItem {
  return appendOnce(arrived, stamp, expected, 'RecordRejected', {
    dataStreamId: arrived.dataStreamId,
    identity: arrived.identity,
    problems: error.fields.slice(0, 16).map((f) => ({ path: clip(f.path), message: clip(f.message) })),
  });
}

/** What a second arrival of the same identity is answered with. */
export interface RecordAnswer {
  recordId: string | null;
}

function appendOnce<T extends 'RecordReceived' | 'RecordRejected'>(
  arrived: ArrivedRecord,
  stamp: RecordStamp,
  expected: 'exists' | 'any',
  type: T,
  payload: unknown,
): AppendItem {
  const answer: RecordAnswer = { recordId: type === 'RecordReceived' ? stamp.recordId : null };
  return {
    writes: [
      {
        streamId: streamId('data-stream', arrived.dataStreamId),
        expected,
        events: [
          {
            eventId: stamp.eventId,
            type,
            tenantId: arrived.tenantId,
            occurredAtMs: stamp.nowMs,
            actor: arrived.actor,
            correlationId: stamp.eventId,
            causationId: null,
            payload,
          } as AppendItem['writes'][number]['events'][number],
        ],
      },
    ],
    idempotency: {
      tenantId: arrived.tenantId,
      key: `record/${arrived.dataStreamId}/${identityText(arrived.identity)}`,
      requestHash: 'identity',
      answer,
    },
  };
}

function identityText(identity: RecordIdentity): string {
  return identity.kind === 'key' ? `key/${identity.key}` : `broker/${identity.generation}/${identity.sequence}`;
}

/** Refusals quote what a stranger sent: keep them short, and storable. */
function clip(text: string): string {
  return text.replaceAll('\u0000', '?').toWellFormed().slice(0, 300);
}
