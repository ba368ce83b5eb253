import pg from 'pg';
import type { LogRow, VerifyResult } from './log-row';
import { verifyLog, type VerifyOptions } from './verify-log';

const BATCH = 1000;

/** Everything as text or bytes: no driver may round a number on the way. Ordered by the column, not by its text. */
const SELECT_ROWS = `
  SELECT global_position::text, event_id::text, stream_id, stream_version::text, category, type, schema_version::text,
         tenant_id::text, occurred_at_ms::text, recorded_at_ms::text, actor, correlation_id, causation_id,
         header_bytes, payload_bytes, data::text, payload_hash, prev_hash, event_hash
  FROM es.events e WHERE e.global_position > $1 ORDER BY e.global_position LIMIT ${BATCH}`;

/** Verifies the log in a database as of one moment, its own head included. */
export async function verifyDatabase(
  databaseUrl: string,
  options: Omit<VerifyOptions, 'recordedHead'> = {},
): Promise<VerifyResult> {
  const client = new pg.Client({ connectionString: databaseUrl, application_name: 'hotbed-verify' });
  client.on('error', () => undefined);
  await client.connect();
  try {
    await client.query('BEGIN TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY');
    return await verifySnapshot(client, options);
  } finally {
    await client.end();
  }
}

/** The same inside the caller's transaction. */
export async function verifySnapshot(
  client: pg.ClientBase,
  options: Omit<VerifyOptions, 'recordedHead'> = {},
): Promise<VerifyResult> {
  const head = await client.query<{ position: string; hash: Buffer }>('SELECT position::text, hash FROM es.log_head');
  const recorded = head.rows[0];
  if (recorded === undefined) {
    return { ok: false, problem: { kind: 'deleted', position: 0n, message: "the log's own head is missing" } };
  }
  const recordedHead = { position: BigInt(recorded.position), hash: recorded.hash.toString('hex') };
  return verifyLog(readLogRows(client), { ...options, recordedHead });
}

/** Rows of the log by position, as they lie there. */
export async function* readLogRows(client: pg.ClientBase): AsyncGenerator<LogRow> {
  let after = '-9223372036854775808';
  for (;;) {
    const { rows } = await client.query<Record<string, string> & Record<string, Buffer>>(SELECT_ROWS, [after]);
    for (const row of rows) yield toLogRow(row);
    if (rows.length < BATCH) return;
    after = rows.at(-1)!['global_position'] as string;
  }
}

function toLogRow(row: Record<string, unknown>): LogRow {
  const text = (column: string): string => row[column] as string;
  const bytes = (column: string): Buffer => row[column] as Buffer;
  return {
    globalPosition: BigInt(text('global_position')),
    eventId: text('event_id'),
    streamId: text('stream_id'),
    streamVersion: BigInt(text('stream_version')),
    category: text('category'),
    type: text('type'),
    schemaVersion: Number(text('schema_version')),
    tenantId: text('tenant_id'),
    occurredAtMs: BigInt(text('occurred_at_ms')),
    recordedAtMs: BigInt(text('recorded_at_ms')),
    actor: text('actor'),
    correlationId: text('correlation_id'),
    causationId: row['causation_id'] as string | null,
    headerBytes: bytes('header_bytes'),
    payloadBytes: bytes('payload_bytes'),
    data: row['data'] as string | null,
    payloadHash: bytes('payload_hash'),
    prevHash: bytes('prev_hash'),
    eventHash: bytes('event_hash'),
  };
}
