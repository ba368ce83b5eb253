import type { MigrationInterface, QueryRunner } from 'typeorm';
import { asOwner, createReadModelSchema } from './as-owner';

/** Versions, aliases, lineage, tenants and keys: everything here can be dropped and folded again from the log. */
export class CreateRegistryReadModel1764500000200 implements MigrationInterface {
  async up(runner: QueryRunner): Promise<void> {
    await createReadModelSchema(
      runner,
      'registry',
      `CREATE TABLE registry.adapter (
        adapter_id uuid PRIMARY KEY,
        tenant_id uuid NOT NULL,
        name text COLLATE "C" NOT NULL,
        spec jsonb NOT NULL,
        base_digest text NOT NULL,
        numerics_id text NOT NULL,
        experiment_id uuid,
        applied_op_index bigint NOT NULL DEFAULT 0,
        latest_version integer,
        created_at_ms bigint NOT NULL,
        UNIQUE (tenant_id, name)
      )`,
      `CREATE TABLE registry.adapter_version (
        adapter_id uuid NOT NULL,
        version integer NOT NULL,
        tenant_id uuid NOT NULL,
        op_index bigint NOT NULL,
        parent_version integer,
        label text,
        weights_digest text NOT NULL,
        state_digest text NOT NULL,
        weights_file jsonb NOT NULL,
        config_file jsonb NOT NULL,
        state_file jsonb NOT NULL,
        position bigint NOT NULL,
        created_at_ms bigint NOT NULL,
        PRIMARY KEY (adapter_id, version)
      )`,
      `CREATE TABLE registry.alias_move (
        position bigint PRIMARY KEY,
        adapter_id uuid NOT NULL,
        tenant_id uuid NOT NULL,
        alias text COLLATE "C" NOT NULL,
        version integer NOT NULL,
        previous_version integer,
        reason text NOT NULL,
        actor text NOT NULL,
        moved_at_ms bigint NOT NULL
      )`,
      `CREATE INDEX alias_move_by_alias ON registry.alias_move (adapter_id, alias, position)`,
      `CREATE TABLE registry.record (
        record_id uuid PRIMARY KEY,
        tenant_id uuid NOT NULL,
        data_stream_id uuid NOT NULL,
        stream_version bigint NOT NULL
      )`,
      `CREATE TABLE registry.influence (
        adapter_id uuid NOT NULL,
        op_index bigint NOT NULL,
        datum_index integer NOT NULL,
        tenant_id uuid NOT NULL,
        operation_position bigint NOT NULL,
        record_id uuid,
        rollouts_stream_id text,
        completed_version bigint,
        branches jsonb NOT NULL,
        PRIMARY KEY (adapter_id, op_index, datum_index)
      )`,
      `CREATE INDEX influence_by_record ON registry.influence (record_id, adapter_id, op_index)`,
      `CREATE TABLE registry.reward_group (
        rollouts_stream_id text COLLATE "C" NOT NULL,
        completed_version bigint NOT NULL,
        rewards jsonb NOT NULL,
        PRIMARY KEY (rollouts_stream_id, completed_version)
      )`,
      `CREATE TABLE registry.tenant (
        tenant_id uuid PRIMARY KEY,
        name text COLLATE "C" NOT NULL UNIQUE
      )`,
      `CREATE TABLE registry.api_key (
        key_id uuid PRIMARY KEY,
        tenant_id uuid NOT NULL,
        role text NOT NULL,
        label text NOT NULL,
        key_digest text NOT NULL UNIQUE,
        revoked boolean NOT NULL DEFAULT false
      )`,
    );
  }

  async down(runner: QueryRunner): Promise<void> {
    await asOwner(runner, `DROP SCHEMA registry CASCADE`);
  }
}
