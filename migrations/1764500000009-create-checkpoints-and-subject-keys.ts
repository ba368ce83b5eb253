import type { MigrationInterface, QueryRunner } from 'typeorm';
import { APP_ROLE, asOwner } from './as-owner';

/** Signed heads of the log, and the keys whose destruction erases a subject. In the schema from the first day. */
export class CreateCheckpointsAndSubjectKeys1764500000009 implements MigrationInterface {
  async up(runner: QueryRunner): Promise<void> {
    await asOwner(
      runner,
      `CREATE TABLE es.log_checkpoint (
        tree_size bigint PRIMARY KEY CHECK (tree_size > 0),
        merkle_root bytea NOT NULL CHECK (octet_length(merkle_root) = 32),
        signature bytea NOT NULL CHECK (octet_length(signature) = 64),
        signed_at timestamptz NOT NULL DEFAULT now()
      )`,
      `CREATE TABLE es.subject_key (
        key_id uuid PRIMARY KEY,
        tenant_id uuid NOT NULL,
        subject_id text COLLATE "C" NOT NULL,
        key_bytes bytea,
        created_at timestamptz NOT NULL DEFAULT now(),
        destroyed_at timestamptz,
        UNIQUE (tenant_id, subject_id)
      )`,
      `COMMENT ON COLUMN es.subject_key.key_bytes IS 'null once destroyed'`,
      `GRANT SELECT, INSERT ON es.log_checkpoint TO ${APP_ROLE}`,
      `GRANT SELECT, INSERT, UPDATE ON es.subject_key TO ${APP_ROLE}`,
    );
  }

  async down(runner: QueryRunner): Promise<void> {
    await asOwner(runner, `DROP TABLE es.log_checkpoint, es.subject_key`);
  }
}
