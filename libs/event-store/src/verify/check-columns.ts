import { isDeepStrictEqual } from 'node:util';
import type { LogRow } from './log-row';

const HEADER_FIELDS = [
  'actor',
  'category',
  'causationId',
  'correlationId',
  'eventId',
  'keyId',
  'occurredAtMs',
  'schemaVersion',
  'streamId',
  'tenantId',
  'type',
];

/** What a row's columns say against its hashed bytes. Returns the first contradiction in words, or null. */
export function checkColumns(row: LogRow): string | null {
  const headerText = utf8(row.headerBytes);
  const header = headerText === null ? null : parseObject(headerText);
  if (headerText === null || header === null) return 'its header is no JSON object';
  const fields = Object.keys(header);
  if (fields.length !== HEADER_FIELDS.length || !fields.every((field, i) => field === HEADER_FIELDS[i])) {
    return `its header has the fields ${fields.join(', ')}`;
  }
  if (JSON.stringify(header) !== headerText) return 'its header is not in canonical form';
  const columns: Record<string, unknown> = {
    actor: row.actor,
    category: row.category,
    causationId: row.causationId,
    correlationId: row.correlationId,
    eventId: row.eventId,
    occurredAtMs: Number(row.occurredAtMs),
    schemaVersion: row.schemaVersion,
    streamId: row.streamId,
    tenantId: row.tenantId,
    type: row.type,
  };
  for (const [field, value] of Object.entries(columns)) {
    const inHeader = header[field];
    const normal = field === 'eventId' || field === 'tenantId' ? String(inHeader).toLowerCase() : inHeader;
    if (normal !== value) return `its column for ${field} says ${String(value)}, its header ${String(inHeader)}`;
  }
  if (!row.streamId.startsWith(`${row.category}:`))
    return `its stream ${row.streamId} is not of category ${row.category}`;
  return checkData(row, header['keyId']);
}

function checkData(row: LogRow, keyId: unknown): string | null {
  if (keyId !== null) return row.data === null ? null : 'its payload is encrypted, but its data column is not empty';
  const payloadText = utf8(row.payloadBytes);
  if (payloadText === null || row.data === null) return 'its data column or its payload is no JSON';
  try {
    return isDeepStrictEqual(JSON.parse(row.data), JSON.parse(payloadText))
      ? null
      : 'its data column differs from its payload';
  } catch {
    return 'its data column or its payload is no JSON';
  }
}

function utf8(bytes: Uint8Array): string | null {
  try {
    return new TextDecoder('utf-8', { fatal: true, ignoreBOM: true }).decode(bytes);
  } catch {
    return null;
  }
}

function parseObject(text: string): Record<string, unknown> | null {
  try {
    const value: unknown = JSON.parse(text);
    return value !== null && typeof value === 'object' && !Array.isArray(value)
      ? (value as Record<string, unknown>)
      : null;
  } catch {
    return null;
  }
}
