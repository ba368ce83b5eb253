import type { Projection } from '#hotbed/event-store';
import { toFloat32Array, type AnyStoredEvent, type RolloutDatum, type UnitOfWork } from '#hotbed/contracts';

/** Tables of the read model: emptied before a rebuild. */
export const REGISTRY_TABLES = [
  'registry.adapter',
  'registry.adapter_version',
  'registry.alias_move',
  'registry.record',
  'registry.influence',
  'registry.reward_group',
  'registry.tenant',
  'registry.api_key',
] as const;

/** Versions, aliases, lineage, tenants and keys as a fold over the log. */
export const registryProjection: Projection = {
  name: 'registry',
  version: 2,
  schema: 'registry',
  categories: ['adapter', 'alias', 'data-stream', 'rollouts', 'tenant'],

  async apply(events, uow) {
    for (const event of events) await project(event, uow);
  },

  async reset(uow) {
    await uow.query(`TRUNCATE ${REGISTRY_TABLES.join(', ')}`);
  },
};

async function project(event: AnyStoredEvent, uow: UnitOfWork): Promise<void> {
  switch (event.type) {
    case 'AdapterCreated': {
      const { adapterId, name, spec, baseDigest, numericsId, experimentId } = event.payload;
      await uow.query(
        `INSERT INTO registry.adapter
           (adapter_id, tenant_id, name, spec, base_digest, numerics_id, experiment_id, created_at_ms)
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8)`,
        [
          adapterId,
          event.tenantId,
          name,
          JSON.stringify(spec),
          baseDigest,
          numericsId,
          experimentId,
          event.occurredAtMs,
        ],
      );
      return;
    }
    case 'OperationAccepted':
      return projectInfluence(event, uow);
    case 'OperationApplied':
    case 'OperationFailed': {
      const { adapterId, opIndex } = event.payload;
      await uow.query('UPDATE registry.adapter SET applied_op_index = $2 WHERE adapter_id = $1', [adapterId, opIndex]);
      // A failed operation is a no-op of the fold: its data influenced nothing.
      if (event.type === 'OperationFailed') {
        await uow.query('DELETE FROM registry.influence WHERE adapter_id = $1 AND op_index = $2', [adapterId, opIndex]);
      }
      return;
    }
    case 'AdapterCheckpointed': {
      const p = event.payload;
      await uow.query(
        `INSERT INTO registry.adapter_version
           (adapter_id, version, tenant_id, op_index, parent_version, label, weights_digest, state_digest,
            weights_file, config_file, state_file, position, created_at_ms)
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13)`,
        [
          p.adapterId,
          p.version,
          event.tenantId,
          p.opIndex,
          p.parentVersion,
          p.label,
          p.weightsDigest,
          p.stateDigest,
          JSON.stringify(p.weightsFile),
          JSON.stringify(p.configFile),
          JSON.stringify(p.stateFile),
          event.globalPosition,
          event.occurredAtMs,
        ],
      );
      await uow.query('UPDATE registry.adapter SET latest_version = $2 WHERE adapter_id = $1', [
        p.adapterId,
        p.version,
      ]);
      return;
    }
    case 'AliasMoved': {
      const { adapterId, alias, version, previousVersion, reason } = event.payload;
      await uow.query(
        `INSERT INTO registry.alias_move
           (position, adapter_id, tenant_id, alias, version, previous_version, reason, actor, moved_at_ms)
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)`,
        [
          event.globalPosition,
          adapterId,
          event.tenantId,
          alias,
          version,
          previousVersion,
          reason,
          event.actor,
          event.recordedAtMs,
        ],
      );
      return;
    }
    case 'RecordReceived':
      await uow.query(
        'INSERT INTO registry.record (record_id, tenant_id, data_stream_id, stream_version) VALUES ($1, $2, $3, $4)',
        [event.payload.recordId, event.tenantId, event.payload.dataStreamId, event.streamVersion],
      );
      return;
    case 'RewardsAssigned':
      await uow.query(
        `INSERT INTO registry.reward_group (rollouts_stream_id, completed_version, tenant_id, rewards)
         VALUES ($1, $2, $3, $4)
         ON CONFLICT (rollouts_stream_id, completed_version) DO UPDATE SET rewards = excluded.rewards`,
        [
          event.streamId,
          event.payload.completedVersion,
          event.tenantId,
          JSON.stringify(Object.fromEntries(event.payload.rewards.map((r) => [r.rolloutId, r.reward]))),
        ],
      );
      return;
    case 'TenantCreated':
      await uow.query('INSERT INTO registry.tenant (tenant_id, name) VALUES ($1, $2)', [
        event.payload.tenantId,
        event.payload.name,
      ]);
      return;
    case 'ApiKeyIssued': {
      const { keyId, tenantId, role, label, keyDigest } = event.payload;
      await uow.query(
        'INSERT INTO registry.api_key (key_id, tenant_id, role, label, key_digest) VALUES ($1, $2, $3, $4, $5)',
        [keyId, tenantId, role, label, keyDigest],
      );
      return;
    }
    case 'ApiKeyRevoked':
      await uow.query('UPDATE registry.api_key SET revoked = true WHERE key_id = $1', [event.payload.keyId]);
      return;
    default:
      // Other events say nothing about versions, lineage or tenants.
      return;
  }
}

type Accepted = Extract<AnyStoredEvent, { type: 'OperationAccepted' }>;

/** One row per datum of an operation: all rows of an operation in one statement. */
async function projectInfluence(event: Accepted, uow: UnitOfWork): Promise<void> {
  const { adapterId, opIndex, operation } = event.payload;
  if (operation.kind !== 'forward_backward') return;
  const rows = operation.datums.map((datum, datumIndex) => ({
    datum_index: datumIndex,
    record_id: datum.recordId,
    rollouts_stream_id: datum.source === 'rollouts' ? datum.streamId : null,
    completed_version: datum.source === 'rollouts' ? datum.completedVersion : null,
    branches: datum.source === 'rollouts' ? rolloutBranches(datum) : [],
  }));
  await uow.query(
    `INSERT INTO registry.influence
       (adapter_id, op_index, datum_index, tenant_id, operation_position, record_id, rollouts_stream_id,
        completed_version, branches)
     SELECT $1, $2, datum_index, $3, $4, record_id, rollouts_stream_id, completed_version, branches
     FROM jsonb_to_recordset($5::jsonb) AS row (datum_index integer, record_id uuid, rollouts_stream_id text,
       completed_version bigint, branches jsonb)`,
    [adapterId, opIndex, event.tenantId, event.globalPosition, JSON.stringify(rows)],
  );
}

function rolloutBranches(datum: RolloutDatum): { rolloutId: string; advantage: number }[] {
  const advantages = toFloat32Array(datum.advantages);
  return datum.branches.map((branch, i) => ({ rolloutId: branch.rolloutId, advantage: advantages[i] ?? 0 }));
}
