import type { MigrationInterface, QueryRunner } from 'typeorm';
import { asOwner, createReadModelSchema } from './as-owner';

/** Each experiment folded: a cache of the log that moves in the transaction of the lane that feeds it. */
export class CreateExperimentProcess1764500000300 implements MigrationInterface {
  async up(runner: QueryRunner): Promise<void> {
    await createReadModelSchema(
      runner,
      'orchestrator',
      `CREATE TABLE orchestrator.experiment_process (
        experiment_id uuid PRIMARY KEY,
        tenant_id uuid NOT NULL,
        adapter_id uuid NOT NULL UNIQUE,
        stream_version bigint NOT NULL,
        created_at_ms bigint NOT NULL,
        changed_at_ms bigint NOT NULL,
        state json NOT NULL
      ) WITH (fillfactor = 50)`,
      `COMMENT ON COLUMN orchestrator.experiment_process.state IS 'json, not jsonb: kept as written, numbers included'`,
      `CREATE INDEX experiment_process_tenant ON orchestrator.experiment_process (tenant_id, experiment_id)`,
    );
  }

  async down(runner: QueryRunner): Promise<void> {
    await asOwner(runner, 'DROP SCHEMA orchestrator CASCADE');
  }
}
