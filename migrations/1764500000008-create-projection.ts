import type { MigrationInterface, QueryRunner } from 'typeorm';
import { APP_ROLE, asOwner } from './as-owner';

/** How far each read model is in the log. The epoch rises with every rebuild and fences runners of the one before. */
export class CreateProjection1764500000008 implements MigrationInterface {
  async up(runner: QueryRunner): Promise<void> {
    await asOwner(
      runner,
      `CREATE TABLE es.projection (
        name text COLLATE "C" NOT NULL,
        version integer NOT NULL CHECK (version > 0),
        position bigint NOT NULL DEFAULT 0,
        epoch bigint NOT NULL DEFAULT 1,
        PRIMARY KEY (name, version)
      ) WITH (fillfactor = 70)`,
      `GRANT SELECT, INSERT, UPDATE, DELETE ON es.projection TO ${APP_ROLE}`,
    );
  }

  async down(runner: QueryRunner): Promise<void> {
    await asOwner(runner, `DROP TABLE es.projection`);
  }
}
