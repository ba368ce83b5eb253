import { DomainError, type CommandReply, type Page } from '#hotbed/contracts';
import { fittingRows } from '#hotbed/messaging';
import type { Queries } from '#hotbed/event-store';

type Influence = CommandReply<'registry', 'lineage-of-version'>['influences'][number];
type TouchedVersion = CommandReply<'registry', 'versions-of-record'>['versions'][number];

/** Who influenced what, read from the operations themselves. */
export class LineageReadModel {
  constructor(private readonly database: Queries) {}

  /**
   * Uses of data by the operations 1..opIndex of an adapter, in the order in which they were applied. What an operation
   * names of another tenant is shown as the id that it named, and nothing more.
   */
  async influences(
    tenantId: string,
    adapterId: string,
    opIndex: string,
    page: Page,
  ): Promise<{ rows: Influence[]; next: string | null }> {
    const after = cursorOf(page.after);
    const { rows } = await this.database.query<Influence>(
      `SELECT i.op_index::text AS "opIndex", i.operation_position::text AS "operationPosition",
         i.datum_index AS "datumIndex", i.record_id AS "recordId", r.data_stream_id AS "dataStreamId",
         r.stream_version::text AS "recordVersion",
         COALESCE((SELECT jsonb_agg(jsonb_build_object('rolloutId', b ->> 'rolloutId', 'advantage', b -> 'advantage',
             'reward', g.rewards -> (b ->> 'rolloutId')) ORDER BY n)
           FROM jsonb_array_elements(i.branches) WITH ORDINALITY AS branch (b, n)), '[]') AS rollouts
       FROM registry.influence i
       LEFT JOIN registry.record r ON r.record_id = i.record_id AND r.tenant_id = i.tenant_id
       LEFT JOIN registry.reward_group g
         ON g.tenant_id = i.tenant_id AND g.rollouts_stream_id = i.rollouts_stream_id
         AND g.completed_version = i.completed_version
       WHERE i.tenant_id = $1 AND i.adapter_id = $2 AND i.op_index <= $3
         AND (i.op_index, i.datum_index) > ($4::bigint, $5::integer)
       ORDER BY i.op_index, i.datum_index LIMIT $6`,
      [tenantId, adapterId, opIndex, after.opIndex, after.datumIndex, page.limit + 1],
    );
    const shown = fittingRows(rows.slice(0, page.limit));
    const last = shown.at(-1);
    return { rows: shown, next: rows.length > shown.length && last ? `${last.opIndex}.${last.datumIndex}` : null };
  }

  async totals(tenantId: string, adapterId: string, opIndex: string): Promise<{ records: number; rollouts: number }> {
    const { rows } = await this.database.query<{ records: number; rollouts: number }>(
      `SELECT count(DISTINCT i.record_id)::integer AS records, count(DISTINCT b ->> 'rolloutId')::integer AS rollouts
       FROM registry.influence i LEFT JOIN LATERAL jsonb_array_elements(i.branches) AS branch (b) ON true
       WHERE i.tenant_id = $1 AND i.adapter_id = $2 AND i.op_index <= $3`,
      [tenantId, adapterId, opIndex],
    );
    return rows[0]!;
  }

  /** Every version at or after the first operation that used the record. */
  async versionsOfRecord(tenantId: string, recordId: string): Promise<TouchedVersion[]> {
    const { rows } = await this.database.query<TouchedVersion>(
      `SELECT v.adapter_id AS "adapterId", a.name AS "adapterName", v.version, used.first::text AS "firstOpIndex"
       FROM (SELECT adapter_id, min(op_index) AS first FROM registry.influence
             WHERE tenant_id = $1 AND record_id = $2 GROUP BY adapter_id) used
       JOIN registry.adapter a USING (adapter_id)
       JOIN registry.adapter_version v ON v.adapter_id = used.adapter_id AND v.op_index >= used.first
       ORDER BY a.name, v.version`,
      [tenantId, recordId],
    );
    return rows;
  }

  async recordExists(tenantId: string, recordId: string): Promise<boolean> {
    const { rowCount } = await this.database.query(
      'SELECT FROM registry.record WHERE tenant_id = $1 AND record_id = $2',
      [tenantId, recordId],
    );
    return rowCount === 1;
  }
}

function cursorOf(after: string | null): { opIndex: string; datumIndex: number } {
  if (after === null) return { opIndex: '0', datumIndex: -1 };
  const match = /^([0-9]{1,18})\.([0-9]{1,9})$/.exec(after);
  if (match !== null) return { opIndex: match[1]!, datumIndex: Number(match[2]) };
  throw new DomainError('InvalidInput', 'invalid_input', 'page.after: expected the next of the page before', {
    fields: [{ path: 'page.after', message: 'expected the next of the page before' }],
  });
}
