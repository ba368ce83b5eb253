import type { Projection } from '#hotbed/event-store';

/** Data streams with their counts, for the doors. */
export const dataStreamProjection: Projection = {
  name: 'data-streams',
  version: 1,
  schema: 'ingest',
  categories: ['data-stream'],

  async apply(events, uow) {
    const counts = new Map<string, { records: number; rejected: number; version: bigint }>();
    for (const event of events) {
      if (event.type === 'DataStreamCreated') {
        await uow.query(
          `INSERT INTO ingest.data_stream (data_stream_id, tenant_id, name, version, created_at_ms)
           VALUES ($1, $2, $3, $4, $5)`,
          [event.payload.dataStreamId, event.tenantId, event.payload.name, event.streamVersion, event.occurredAtMs],
        );
      }
      const id = event.streamId.slice('data-stream:'.length);
      const count = counts.get(id) ?? { records: 0, rejected: 0, version: 0n };
      if (event.type === 'RecordReceived') count.records += 1;
      if (event.type === 'RecordRejected') count.rejected += 1;
      count.version = event.streamVersion;
      counts.set(id, count);
    }
    // One update per stream and batch, not one per record.
    for (const [id, { records, rejected, version }] of counts) {
      await uow.query(
        `UPDATE ingest.data_stream SET records = records + $2, rejected = rejected + $3, version = $4
         WHERE data_stream_id = $1`,
        [id, records, rejected, version],
      );
    }
  },

  async reset(uow) {
    await uow.query('TRUNCATE ingest.data_stream');
  },
};
