import type { AppendResult, AppendedStream } from '#hotbed/contracts';
import type { Pool } from 'pg';
import type { EncodedItem } from './append-call';

/** The result of an item that is in the log already, found by its event ids; null when it is not. */
export async function findAppended(pool: Pool, item: EncodedItem): Promise<AppendResult | null> {
  const { rows } = await pool.query<{ stream_id: string; stream_version: bigint; global_position: bigint }>(
    `SELECT stream_id, stream_version, global_position FROM es.events
     WHERE event_id = ANY ($1::uuid[]) ORDER BY global_position`,
    [item.events.map((event) => event.eventId)],
  );
  if (rows.length !== item.events.length) return null;
  const streams = new Map<string, AppendedStream>();
  for (const { stream_id: streamId, stream_version: version } of rows) {
    const known = streams.get(streamId);
    if (known === undefined) streams.set(streamId, { streamId, firstVersion: version, lastVersion: version });
    else known.lastVersion = version;
  }
  return {
    outcome: 'appended',
    streams: [...streams.values()],
    firstPosition: rows[0]!.global_position,
    lastPosition: rows.at(-1)!.global_position,
  };
}
