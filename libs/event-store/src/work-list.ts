import type { BlobStore, StoredEvent } from '#hotbed/contracts';
import type { Pool } from 'pg';
import { withDomainErrors } from './database-errors';
import { EVENT_COLUMNS, decodeEvent, type EventRow } from './decode-event';

/** One prompt of a rollout request that nobody has answered. */
export interface OpenRequest {
  requestId: string;
  promptIndex: number;
  /** Stream and version of its RolloutsRequested. */
  streamId: string;
  requestVersion: bigint;
  tenantId: string;
  /** null = the plain base; then opIndex is null too. */
  adapterId: string | null;
  opIndex: bigint | null;
}

/** What a worker has to do, read from the log's own tables: the broker only rings. */
export class WorkList {
  constructor(
    private readonly pool: Pool,
    private readonly blobs: BlobStore,
  ) {}

  /** Oldest first. `adapterIds` keeps those of these adapters and, with null among them, of the plain base. */
  async openRequests(limit: number, adapterIds?: readonly (string | null)[]): Promise<OpenRequest[]> {
    const { rows } = await withDomainErrors(() =>
      this.pool.query<OpenRequest>(
        `SELECT request_id AS "requestId", prompt_index AS "promptIndex", stream_id AS "streamId",
                request_version AS "requestVersion", tenant_id AS "tenantId", adapter_id AS "adapterId",
                op_index AS "opIndex"
         FROM es.open_request
         WHERE $2::uuid[] IS NULL OR adapter_id = ANY ($2) OR ($3 AND adapter_id IS NULL)
         ORDER BY opened_order LIMIT $1`,
        [limit, adapterIds?.filter((id) => id !== null) ?? null, adapterIds?.includes(null) ?? false],
      ),
    );
    return rows;
  }

  /** The request as it was asked, by a row of openRequests. */
  async requestOf(open: { streamId: string; requestVersion: bigint }): Promise<StoredEvent<'RolloutsRequested'>> {
    const [event] = await this.read<'RolloutsRequested'>(
      `SELECT ${EVENT_COLUMNS} FROM es.events WHERE stream_id = $1 AND stream_version = $2`,
      [open.streamId, open.requestVersion],
    );
    if (event?.type !== 'RolloutsRequested') {
      throw new Error(`version ${open.requestVersion} of ${open.streamId} is no RolloutsRequested`);
    }
    return event;
  }

  /** Adapters with accepted operations that are not applied. */
  async adaptersWithUnapplied(limit: number): Promise<string[]> {
    const { rows } = await withDomainErrors(() =>
      this.pool.query<{ adapter_id: string }>(
        'SELECT adapter_id FROM es.adapter_head WHERE next_op_index > applied_op_index + 1 ORDER BY adapter_id LIMIT $1',
        [limit],
      ),
    );
    return rows.map((row) => row.adapter_id);
  }

  /** OperationAccepted with opIndex > applied, ascending. */
  async unappliedOperations(adapterId: string, limit = 1000): Promise<StoredEvent<'OperationAccepted'>[]> {
    return this.read(
      `SELECT ${EVENT_COLUMNS.replaceAll(/\w+/g, 'e.$&')}
       FROM es.adapter_head h
       JOIN es.accepted_operation o ON o.adapter_id = h.adapter_id AND o.op_index > h.applied_op_index
       JOIN es.events e ON e.stream_id = 'adapter:' || h.adapter_id AND e.stream_version = o.stream_version
       WHERE h.adapter_id = $1 ORDER BY o.op_index LIMIT $2`,
      [adapterId, limit],
    );
  }

  /** OperationAccepted with opIndex > after and <= upTo, ascending: what a fold from state(after) applies. */
  async operationsFrom(
    adapterId: string,
    afterOpIndex: bigint,
    options: { upTo?: bigint; limit?: number } = {},
  ): Promise<StoredEvent<'OperationAccepted'>[]> {
    return this.read(
      `SELECT ${EVENT_COLUMNS.replaceAll(/\w+/g, 'e.$&')}
       FROM es.accepted_operation o
       JOIN es.events e ON e.stream_id = 'adapter:' || o.adapter_id AND e.stream_version = o.stream_version
       WHERE o.adapter_id = $1 AND o.op_index > $2 AND ($3::bigint IS NULL OR o.op_index <= $3)
       ORDER BY o.op_index LIMIT $4`,
      [adapterId, afterOpIndex, options.upTo ?? null, options.limit ?? null],
    );
  }

  private async read<T extends 'OperationAccepted' | 'RolloutsRequested'>(
    sql: string,
    parameters: unknown[],
  ): Promise<StoredEvent<T>[]> {
    const { rows } = await withDomainErrors(() => this.pool.query<EventRow>(sql, parameters));
    const events: StoredEvent<T>[] = [];
    for (const row of rows) events.push((await decodeEvent(row, this.blobs)) as unknown as StoredEvent<T>);
    return events;
  }
}
