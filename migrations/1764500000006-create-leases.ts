import type { MigrationInterface, QueryRunner } from 'typeorm';
import { APP_ROLE, asOwner } from './as-owner';

/** Who may work on what. A worker's identity is the key of the session advisory lock that proves that it lives. */
export class CreateLeases1764500000006 implements MigrationInterface {
  async up(runner: QueryRunner): Promise<void> {
    await asOwner(
      runner,
      `CREATE TABLE es.worker (
        identity bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
        worker_id uuid NOT NULL,
        process_id integer NOT NULL,
        registered_at timestamptz NOT NULL DEFAULT now()
      )`,
      `CREATE TABLE es.lease (
        resource text COLLATE "C" PRIMARY KEY,
        owner bigint REFERENCES es.worker (identity),
        epoch bigint NOT NULL DEFAULT 0,
        expires_at timestamptz NOT NULL DEFAULT '-infinity'
      ) WITH (fillfactor = 70)`,
      `COMMENT ON COLUMN es.lease.owner IS 'null: released'`,
      `CREATE INDEX lease_owner ON es.lease (owner)`,
      `GRANT SELECT, INSERT ON es.worker TO ${APP_ROLE}`,
      `GRANT SELECT, INSERT, UPDATE ON es.lease TO ${APP_ROLE}`,
    );
  }

  async down(runner: QueryRunner): Promise<void> {
    await asOwner(runner, `DROP TABLE es.lease, es.worker`);
  }
}
