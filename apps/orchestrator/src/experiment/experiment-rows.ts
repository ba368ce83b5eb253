import type { UnitOfWork } from '#hotbed/contracts';
import type { OpenExperiment } from './experiment';

/** An experiment as its table keeps it: the fold and where in the log it stands. */
export interface ExperimentRow {
  tenantId: string;
  /** Version of the experiment's own stream. */
  streamVersion: bigint;
  createdAtMs: number;
  /** When the row was last saved: says how long nothing has happened. Not of the log. */
  changedAtMs: number;
  experiment: OpenExperiment;
}

interface StoredRow {
  tenant_id: string;
  stream_version: bigint;
  created_at_ms: bigint;
  changed_at_ms: bigint;
  state: OpenExperiment;
}

const COLUMNS = 'tenant_id, stream_version, created_at_ms, changed_at_ms, state';

/** Table `orchestrator.experiment_process`. A locked row serialises everything that is decided about its experiment. */
export const experimentRows = {
  lock: (uow: UnitOfWork, experimentId: string) =>
    one(
      uow,
      `SELECT ${COLUMNS} FROM orchestrator.experiment_process WHERE experiment_id = $1 FOR UPDATE`,
      experimentId,
    ),

  lockByAdapter: (uow: UnitOfWork, adapterId: string) =>
    one(uow, `SELECT ${COLUMNS} FROM orchestrator.experiment_process WHERE adapter_id = $1 FOR UPDATE`, adapterId),

  read: (uow: UnitOfWork, experimentId: string) =>
    one(uow, `SELECT ${COLUMNS} FROM orchestrator.experiment_process WHERE experiment_id = $1`, experimentId),

  async page(uow: UnitOfWork, tenantId: string, after: string | null, limit: number): Promise<ExperimentRow[]> {
    const rows = await uow.query<StoredRow>(
      `SELECT ${COLUMNS} FROM orchestrator.experiment_process
       WHERE tenant_id = $1 AND ($2::uuid IS NULL OR experiment_id > $2) ORDER BY experiment_id LIMIT $3`,
      [tenantId, after, limit],
    );
    return rows.map(toRow);
  },

  /** Another process may have rebuilt the same row a moment earlier: then its row stands. */
  async insert(uow: UnitOfWork, row: ExperimentRow): Promise<void> {
    const { experimentId, adapterId } = row.experiment.created;
    await uow.query(
      `INSERT INTO orchestrator.experiment_process
         (experiment_id, tenant_id, adapter_id, stream_version, created_at_ms, changed_at_ms, state)
       VALUES ($1, $2, $3, $4, $5, $6, $7) ON CONFLICT DO NOTHING`,
      [
        experimentId,
        row.tenantId,
        adapterId,
        row.streamVersion,
        row.createdAtMs,
        row.changedAtMs,
        JSON.stringify(row.experiment),
      ],
    );
  },

  async save(uow: UnitOfWork, row: ExperimentRow): Promise<void> {
    await uow.query(
      `UPDATE orchestrator.experiment_process SET stream_version = $2, changed_at_ms = $3, state = $4
       WHERE experiment_id = $1`,
      [row.experiment.created.experimentId, row.streamVersion, row.changedAtMs, JSON.stringify(row.experiment)],
    );
  },

  async isEmpty(uow: UnitOfWork): Promise<boolean> {
    const rows = await uow.query('SELECT 1 FROM orchestrator.experiment_process LIMIT 1');
    return rows.length === 0;
  },
};

async function one(uow: UnitOfWork, sql: string, id: string): Promise<ExperimentRow | null> {
  const [row] = await uow.query<StoredRow>(sql, [id]);
  return row === undefined ? null : toRow(row);
}

function toRow(row: StoredRow): ExperimentRow {
  return {
    tenantId: row.tenant_id,
    streamVersion: row.stream_version,
    createdAtMs: Number(row.created_at_ms),
    changedAtMs: Number(row.changed_at_ms),
    experiment: row.state,
  };
}
