import {
  DomainError,
  EVENTS,
  blobRefSchema,
  isEventType,
  type AnyStoredEvent,
  type BlobStore,
  type EventHeader,
} from '#hotbed/contracts';
import { upcast } from './upcast';

/** Columns that readers take; every other one is a copy of header fields for queries. */
export const EVENT_COLUMNS = 'global_position, stream_version, recorded_at_ms, event_hash, header_bytes, payload_bytes';

export interface EventRow {
  global_position: bigint;
  stream_version: bigint;
  recorded_at_ms: bigint;
  event_hash: Buffer;
  header_bytes: Buffer;
  payload_bytes: Buffer;
}

/**
 * From stored bytes to the event that consumers see: blob resolved, older payloads brought up to date, schema checked.
 * @throws IllegalState `unknown_event_type` or `unknown_event_version`: written by a newer Hotbed; stop, never skip
 */
export async function decodeEvent(row: EventRow, blobs: BlobStore): Promise<AnyStoredEvent> {
  const header = JSON.parse(row.header_bytes.toString('utf8')) as EventHeader;
  if (!isEventType(header.type)) {
    throw new DomainError('IllegalState', 'unknown_event_type', unreadable(row, header), {
      context: { type: header.type },
    });
  }
  const known = EVENTS[header.type];
  if (header.schemaVersion > known.schemaVersion) {
    throw new DomainError('IllegalState', 'unknown_event_version', unreadable(row, header), {
      context: { type: header.type, schemaVersion: header.schemaVersion },
    });
  }
  const stored: unknown = JSON.parse((await payloadText(row, header, blobs)).toString('utf8'));
  const payload = known.schema.parse(upcast(header.type, header.schemaVersion, known.schemaVersion, stored));
  return {
    ...header,
    globalPosition: row.global_position,
    streamVersion: row.stream_version,
    recordedAtMs: Number(row.recorded_at_ms),
    eventHash: row.event_hash.toString('hex'),
    payload,
  } as AnyStoredEvent;
}

async function payloadText(row: EventRow, header: EventHeader, blobs: BlobStore): Promise<Buffer> {
  if (!row.payload_bytes.subarray(0, 9).equals(BLOB_PREFIX)) return row.payload_bytes;
  const { $blob } = JSON.parse(row.payload_bytes.toString('utf8')) as { $blob: unknown };
  return blobs.get(header.tenantId, blobRefSchema.parse($blob).digest);
}

/** How the canonical bytes of a spilled payload begin; no payload has a field of this name. */
const BLOB_PREFIX = Buffer.from('{"$blob":');

function unreadable(row: EventRow, header: EventHeader): string {
  return `event ${row.global_position} is ${header.type} of schema version ${header.schemaVersion}, which this version of Hotbed does not know; update it`;
}
