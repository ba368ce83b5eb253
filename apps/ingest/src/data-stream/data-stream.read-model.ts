import {
  InvalidInput,
  NotFound,
  ingestSubject,
  type CommandReply,
  type DataStreamView,
  type Page,
} from '#hotbed/contracts';
import { fittingRows } from '#hotbed/messaging';
import type { Queries } from '#hotbed/event-store';

type RecordView = CommandReply<'ingest', 'list-records'>['records'][number];

interface Row extends Omit<DataStreamView, 'subject'> {
  tenantId: string;
}

const COLUMNS = `data_stream_id AS "dataStreamId", tenant_id AS "tenantId", name, records::float8 AS records,
  rejected::float8 AS rejected, version::text AS version, created_at_ms::float8 AS "createdAtMs"`;

/** Data streams and their records, by tenant. */
export class DataStreamReadModel {
  constructor(private readonly database: Queries) {}

  /** @throws NotFound */
  async get(tenantId: string, dataStreamId: string): Promise<DataStreamView> {
    const { rows } = await this.database.query<Row>(
      `SELECT ${COLUMNS} FROM ingest.data_stream WHERE tenant_id = $1 AND data_stream_id = $2`,
      [tenantId, dataStreamId],
    );
    if (rows[0] === undefined) throw new NotFound('data stream', dataStreamId);
    return view(rows[0]);
  }

  async list(tenantId: string, page: Page): Promise<{ rows: DataStreamView[]; next: string | null }> {
    const { rows } = await this.database.query<Row>(
      `SELECT ${COLUMNS} FROM ingest.data_stream
       WHERE tenant_id = $1 AND ($2::text IS NULL OR name > $2) ORDER BY name LIMIT $3`,
      [tenantId, page.after, page.limit + 1],
    );
    const shown = fittingRows(rows.slice(0, page.limit));
    return { rows: shown.map(view), next: rows.length > shown.length ? shown.at(-1)!.name : null };
  }

  /** Oldest first; the cursor is a stream version. */
  async records(dataStreamId: string, page: Page): Promise<{ rows: RecordView[]; next: string | null }> {
    if (page.after !== null && !/^[0-9]{1,18}$/.test(page.after)) {
      throw new InvalidInput([{ path: 'page.after', message: 'expected the next of the page before' }]);
    }
    const { rows } = await this.database.query<RecordView>(
      `SELECT data ->> 'recordId' AS "recordId", stream_version::text AS "streamVersion",
         data -> 'content' ->> 'prompt' AS prompt, data -> 'content' ->> 'answer' AS answer,
         occurred_at_ms::float8 AS "receivedAtMs"
       FROM es.events WHERE stream_id = $1 AND type = 'RecordReceived' AND stream_version > $2
       ORDER BY stream_version LIMIT $3`,
      [`data-stream:${dataStreamId}`, page.after ?? '0', page.limit + 1],
    );
    const shown = fittingRows(rows.slice(0, page.limit));
    return { rows: shown, next: rows.length > shown.length ? shown.at(-1)!.streamVersion : null };
  }
}

function view({ tenantId, ...row }: Row): DataStreamView {
  return { ...row, subject: ingestSubject(tenantId, row.dataStreamId) };
}
