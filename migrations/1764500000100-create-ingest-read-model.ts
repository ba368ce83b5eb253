import type { MigrationInterface, QueryRunner } from 'typeorm';
import { asOwner, createReadModelSchema } from './as-owner';

/** Data streams for their doors, and where each experiment's trigger stands. */
export class CreateIngestReadModel1764500000100 implements MigrationInterface {
  async up(runner: QueryRunner): Promise<void> {
    await createReadModelSchema(
      runner,
      'ingest',
      `CREATE TABLE ingest.data_stream (
        data_stream_id uuid PRIMARY KEY,
        tenant_id uuid NOT NULL,
        name text COLLATE "C" NOT NULL,
        records bigint NOT NULL DEFAULT 0,
        rejected bigint NOT NULL DEFAULT 0,
        version bigint NOT NULL,
        created_at_ms bigint NOT NULL,
        UNIQUE (tenant_id, name)
      ) WITH (fillfactor = 70)`,
      `CREATE TABLE ingest.training_trigger (
        experiment_id uuid PRIMARY KEY,
        tenant_id uuid NOT NULL,
        data_stream_id uuid NOT NULL,
        policy jsonb NOT NULL,
        cursor_version bigint NOT NULL DEFAULT 0,
        last_triggered_ms bigint NOT NULL
      )`,
      `CREATE INDEX training_trigger_by_stream ON ingest.training_trigger (data_stream_id)`,
    );
  }

  async down(runner: QueryRunner): Promise<void> {
    await asOwner(runner, `DROP SCHEMA ingest CASCADE`);
  }
}
