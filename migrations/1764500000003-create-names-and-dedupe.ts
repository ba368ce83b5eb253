import type { MigrationInterface, QueryRunner } from 'typeorm';
import { APP_ROLE, asOwner } from './as-owner';

/** What makes a command idempotent and a name unique. Written by the append function alone. */
export class CreateNamesAndDedupe1764500000003 implements MigrationInterface {
  async up(runner: QueryRunner): Promise<void> {
    await asOwner(
      runner,
      `CREATE TABLE es.command_dedupe (
        tenant_id uuid NOT NULL,
        key text COLLATE "C" NOT NULL,
        request_hash text NOT NULL,
        answer jsonb NOT NULL,
        stored_at timestamptz NOT NULL DEFAULT now(),
        PRIMARY KEY (tenant_id, key)
      )`,
      `CREATE TABLE es.names (
        tenant_id uuid NOT NULL,
        kind text COLLATE "C" NOT NULL,
        name text COLLATE "C" NOT NULL CHECK (name ~ '^[a-z0-9][a-z0-9._-]{0,62}$'),
        id uuid NOT NULL,
        PRIMARY KEY (tenant_id, kind, name)
      )`,
      `GRANT SELECT ON es.command_dedupe, es.names TO ${APP_ROLE}`,
    );
  }

  async down(runner: QueryRunner): Promise<void> {
    await asOwner(runner, `DROP TABLE es.names, es.command_dedupe`);
  }
}
