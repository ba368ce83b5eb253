import { WINDOW_RECORDS, type UnitOfWork } from '#hotbed/contracts';
import type { CountedRecord, Trigger } from './trigger';

interface TriggerRow extends Omit<Trigger, 'lastTriggeredMs'> {
  lastTriggeredMs: bigint;
}

const COLUMNS = `experiment_id AS "experimentId", tenant_id AS "tenantId", data_stream_id AS "dataStreamId", policy,
  cursor_version AS "cursorVersion", last_triggered_ms AS "lastTriggeredMs"`;

/** Where each experiment's trigger stands; read and moved under a row lock, in the transaction that appends the trigger. */
export const triggers = {
  /**
   * Held to the end of the transaction by whoever counts records of a stream: without it, a record that commits while an
   * experiment is being added could be seen by neither of the two lanes.
   */
  async lockStream(uow: UnitOfWork, dataStreamId: string): Promise<void> {
    await uow.query("SELECT pg_advisory_xact_lock(hashtextextended('ingest.trigger/' || $1, 0))", [dataStreamId]);
  },

  async add(uow: UnitOfWork, trigger: Trigger): Promise<void> {
    await uow.query(
      `INSERT INTO ingest.training_trigger
         (experiment_id, tenant_id, data_stream_id, policy, cursor_version, last_triggered_ms)
       VALUES ($1, $2, $3, $4, $5, $6) ON CONFLICT (experiment_id) DO NOTHING`,
      [
        trigger.experimentId,
        trigger.tenantId,
        trigger.dataStreamId,
        JSON.stringify(trigger.policy),
        trigger.cursorVersion,
        trigger.lastTriggeredMs,
      ],
    );
  },

  async remove(uow: UnitOfWork, experimentId: string): Promise<void> {
    await uow.query('DELETE FROM ingest.training_trigger WHERE experiment_id = $1', [experimentId]);
  },

  async ofStream(uow: UnitOfWork, dataStreamId: string): Promise<Trigger[]> {
    return (
      await uow.query<TriggerRow>(
        `SELECT ${COLUMNS} FROM ingest.training_trigger WHERE data_stream_id = $1 ORDER BY experiment_id FOR UPDATE`,
        [dataStreamId],
      )
    ).map(fromRow);
  },

  async ofExperiment(uow: UnitOfWork, tenantId: string, experimentId: string): Promise<Trigger | null> {
    const rows = await uow.query<TriggerRow>(
      `SELECT ${COLUMNS} FROM ingest.training_trigger WHERE tenant_id = $1 AND experiment_id = $2 FOR UPDATE`,
      [tenantId, experimentId],
    );
    return rows[0] === undefined ? null : fromRow(rows[0]);
  },

  /** Experiments whose interval is over. */
  async due(uow: UnitOfWork, nowMs: number): Promise<{ tenantId: string; experimentId: string }[]> {
    return uow.query(
      `SELECT tenant_id AS "tenantId", experiment_id AS "experimentId" FROM ingest.training_trigger
       WHERE policy ->> 'kind' = 'interval' AND last_triggered_ms + (policy ->> 'everyMs')::bigint <= $1
       ORDER BY experiment_id`,
      [nowMs],
    );
  },

  async moveCursor(uow: UnitOfWork, experimentId: string, cursorVersion: bigint, nowMs: number): Promise<void> {
    await uow.query(
      'UPDATE ingest.training_trigger SET cursor_version = $2, last_triggered_ms = $3 WHERE experiment_id = $1',
      [experimentId, cursorVersion, nowMs],
    );
  },

  /** Records of the trigger's data stream behind its cursor, ascending. */
  async recordsAfter(uow: UnitOfWork, trigger: Trigger, limit = WINDOW_RECORDS): Promise<CountedRecord[]> {
    return uow.query<CountedRecord>(
      `SELECT stream_version AS "streamVersion" FROM es.events
       WHERE stream_id = $1 AND type = 'RecordReceived' AND stream_version > $2 ORDER BY stream_version LIMIT $3`,
      [`data-stream:${trigger.dataStreamId}`, trigger.cursorVersion, limit],
    );
  },
};

function fromRow(row: TriggerRow): Trigger {
  return { ...row, lastTriggeredMs: Number(row.lastTriggeredMs) };
}
