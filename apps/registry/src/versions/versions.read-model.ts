import { DomainError, NotFound, type AdapterVersionView, type AdapterView, type Page } from '#hotbed/contracts';
import { fittingRows } from '#hotbed/messaging';
import type { Queries } from '#hotbed/event-store';

const ADAPTER_COLUMNS = `
  a.adapter_id AS "adapterId", a.name, a.spec, a.base_digest AS "baseDigest", a.numerics_id AS "numericsId",
  a.experiment_id AS "experimentId", a.applied_op_index::text AS "appliedOpIndex", a.latest_version AS "latestVersion",
  a.created_at_ms::float8 AS "createdAtMs",
  COALESCE((SELECT jsonb_object_agg(m.alias, m.version) FROM (
    SELECT DISTINCT ON (alias) alias, version FROM registry.alias_move
    WHERE adapter_id = a.adapter_id ORDER BY alias, position DESC) m), '{}') AS aliases`;

const VERSION_COLUMNS = `
  v.adapter_id AS "adapterId", a.name AS "adapterName", v.version, v.op_index::text AS "opIndex",
  v.parent_version AS "parentVersion", v.label, a.spec, a.base_digest AS "baseDigest", a.numerics_id AS "numericsId",
  v.weights_digest AS "weightsDigest", v.state_digest AS "stateDigest", v.weights_file AS "weightsFile",
  v.config_file AS "configFile", v.state_file AS "stateFile", v.position::text AS position,
  v.created_at_ms::float8 AS "createdAtMs"`;

export interface AliasMoveView {
  version: number;
  previousVersion: number | null;
  reason: string;
  actor: string;
  movedAtMs: number;
  position: string;
}

/** Adapters, versions and aliases. Every query carries the tenant: another tenant's names do not exist. */
export class VersionsReadModel {
  constructor(private readonly database: Queries) {}

  /** By name, else by id: a name may look like the id of another adapter. @throws NotFound */
  async adapter(tenantId: string, ref: string): Promise<AdapterView> {
    const { rows } = await this.database.query<AdapterView>(
      `SELECT ${ADAPTER_COLUMNS} FROM registry.adapter a
       WHERE a.tenant_id = $1 AND (a.name = $2 OR a.adapter_id::text = $2) ORDER BY a.name = $2 DESC LIMIT 1`,
      [tenantId, ref],
    );
    if (rows[0] === undefined) throw new NotFound('adapter', ref, 'see hotbed adapters list');
    return rows[0];
  }

  async adapters(tenantId: string, page: Page): Promise<{ rows: AdapterView[]; next: string | null }> {
    const { rows } = await this.database.query<AdapterView>(
      `SELECT ${ADAPTER_COLUMNS} FROM registry.adapter a
       WHERE a.tenant_id = $1 AND ($2::text IS NULL OR a.name > $2) ORDER BY a.name LIMIT $3`,
      [tenantId, page.after, page.limit + 1],
    );
    const shown = fittingRows(rows.slice(0, page.limit));
    return { rows: shown, next: rows.length > shown.length ? shown.at(-1)!.name : null };
  }

  /** @throws NotFound */
  async version(tenantId: string, adapterId: string, version: number): Promise<AdapterVersionView> {
    const { rows } = await this.database.query<AdapterVersionView>(
      `SELECT ${VERSION_COLUMNS} FROM registry.adapter_version v JOIN registry.adapter a USING (adapter_id)
       WHERE v.tenant_id = $1 AND v.adapter_id = $2 AND v.version = $3`,
      [tenantId, adapterId, version],
    );
    if (rows[0] === undefined) throw new NotFound('version', String(version), 'see hotbed adapters versions <adapter>');
    return rows[0];
  }

  async versions(
    tenantId: string,
    adapterId: string,
    page: Page,
  ): Promise<{ rows: AdapterVersionView[]; next: string | null }> {
    const after = versionAfter(page.after);
    const { rows } = await this.database.query<AdapterVersionView>(
      `SELECT ${VERSION_COLUMNS} FROM registry.adapter_version v JOIN registry.adapter a USING (adapter_id)
       WHERE v.tenant_id = $1 AND v.adapter_id = $2 AND v.version > $3 ORDER BY v.version LIMIT $4`,
      [tenantId, adapterId, after, page.limit + 1],
    );
    const shown = fittingRows(rows.slice(0, page.limit));
    return { rows: shown, next: rows.length > shown.length ? String(shown.at(-1)!.version) : null };
  }

  /** The version an alias named at a time (now when null). @throws NotFound */
  async aliasTarget(tenantId: string, adapterId: string, alias: string, asOfMs: number | null): Promise<number> {
    const { rows } = await this.database.query<{ version: number }>(
      `SELECT version FROM registry.alias_move
       WHERE tenant_id = $1 AND adapter_id = $2 AND alias = $3 AND ($4::float8 IS NULL OR moved_at_ms <= $4)
       ORDER BY position DESC LIMIT 1`,
      [tenantId, adapterId, alias, asOfMs],
    );
    if (rows[0] !== undefined) return rows[0].version;
    throw new NotFound('alias', alias, asOfMs === null ? 'no version was given this name yet' : 'not at that time');
  }

  /** Oldest first. */
  async aliasMoves(tenantId: string, adapterId: string, alias: string): Promise<AliasMoveView[]> {
    const { rows } = await this.database.query<AliasMoveView>(
      `SELECT version, previous_version AS "previousVersion", reason, actor, moved_at_ms::float8 AS "movedAtMs",
         position::text AS position
       FROM registry.alias_move WHERE tenant_id = $1 AND adapter_id = $2 AND alias = $3 ORDER BY position`,
      [tenantId, adapterId, alias],
    );
    return rows;
  }
}

function versionAfter(after: string | null): number {
  if (after === null) return 0;
  if (/^[0-9]{1,9}$/.test(after)) return Number(after);
  throw new DomainError('InvalidInput', 'invalid_input', 'page.after: expected the next of the page before', {
    fields: [{ path: 'page.after', message: 'expected the next of the page before' }],
  });
}
