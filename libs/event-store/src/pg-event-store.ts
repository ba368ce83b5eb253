import type {
  AnyStoredEvent,
  AppendItem,
  AppendResult,
  BlobStore,
  Category,
  EventStore,
  LogHead,
} from '#hotbed/contracts';
import type { Pool } from 'pg';
import { AppendGroup } from './append-group';
import { withDomainErrors } from './database-errors';
import { EVENT_COLUMNS, decodeEvent, type EventRow } from './decode-event';

/** The log in PostgreSQL. Reads see every position below the newest one they see: positions are gapless in commit order. */
export class PgEventStore implements EventStore {
  private readonly group: AppendGroup;

  constructor(
    private readonly pool: Pool,
    private readonly blobs: BlobStore,
  ) {
    this.group = new AppendGroup(pool, blobs);
  }

  append(item: AppendItem): Promise<AppendResult> {
    return this.group.append(item);
  }

  async readStream(
    streamId: string,
    options: { after?: bigint; upTo?: bigint; limit?: number } = {},
  ): Promise<AnyStoredEvent[]> {
    return this.read(
      `SELECT ${EVENT_COLUMNS} FROM es.events
       WHERE stream_id = $1 AND stream_version > $2 AND ($3::bigint IS NULL OR stream_version <= $3)
       ORDER BY stream_version LIMIT $4`,
      [streamId, options.after ?? 0n, options.upTo ?? null, options.limit ?? null],
    );
  }

  async readAll(options: {
    after: bigint;
    limit: number;
    categories?: readonly Category[];
  }): Promise<AnyStoredEvent[]> {
    return options.categories === undefined
      ? this.read(
          `SELECT ${EVENT_COLUMNS} FROM es.events WHERE global_position > $1 ORDER BY global_position LIMIT $2`,
          [options.after, options.limit],
        )
      : this.read(
          `SELECT ${EVENT_COLUMNS} FROM es.events WHERE global_position > $1 AND category = ANY ($3)
           ORDER BY global_position LIMIT $2`,
          [options.after, options.limit, options.categories],
        );
  }

  async head(): Promise<LogHead> {
    const { rows } = await withDomainErrors(() =>
      this.pool.query<{ position: bigint; hash: Buffer }>('SELECT position, hash FROM es.log_head'),
    );
    return { position: rows[0]!.position, hash: rows[0]!.hash.toString('hex') };
  }

  async adapterHead(adapterId: string): Promise<{ nextOpIndex: bigint; appliedOpIndex: bigint } | null> {
    const { rows } = await withDomainErrors(() =>
      this.pool.query<{ nextOpIndex: bigint; appliedOpIndex: bigint }>(
        `SELECT next_op_index AS "nextOpIndex", applied_op_index AS "appliedOpIndex"
         FROM es.adapter_head WHERE adapter_id = $1`,
        [adapterId],
      ),
    );
    return rows[0] ?? null;
  }

  async idOfName(tenantId: string, kind: string, name: string): Promise<string | null> {
    const { rows } = await withDomainErrors(() =>
      this.pool.query<{ id: string }>('SELECT id FROM es.names WHERE tenant_id = $1 AND kind = $2 AND name = $3', [
        tenantId,
        kind,
        name,
      ]),
    );
    return rows[0]?.id ?? null;
  }

  private async read(sql: string, parameters: unknown[]): Promise<AnyStoredEvent[]> {
    const { rows } = await withDomainErrors(() => this.pool.query<EventRow>(sql, parameters));
    const events: AnyStoredEvent[] = [];
    for (const row of rows) events.push(await decodeEvent(row, this.blobs));
    return events;
  }
}
