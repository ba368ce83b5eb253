import type { MigrationInterface, QueryRunner } from 'typeorm';
import { APP_ROLE, OWNER_ROLE } from './as-owner';

/** Roles belong to the whole server: another database's migration may have made them, even at this moment. */
export class CreateRoles1764500000001 implements MigrationInterface {
  async up(runner: QueryRunner): Promise<void> {
    for (const role of [OWNER_ROLE, APP_ROLE]) {
      await runner.query(`
        DO $$ BEGIN
          IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = '${role}') THEN
            CREATE ROLE ${role} NOLOGIN;
          END IF;
        EXCEPTION WHEN duplicate_object OR unique_violation THEN NULL;
        END $$`);
      // Concurrent grants of one role touch one catalogue row ("tuple concurrently updated"): the lock is per database.
      await runner.query(`
        DO $$ BEGIN
          FOR attempt IN 1..20 LOOP
            BEGIN
              IF NOT pg_has_role(current_user, '${role}', 'MEMBER') THEN
                EXECUTE format('GRANT ${role} TO %I', current_user);
              END IF;
              EXIT;
            EXCEPTION WHEN internal_error OR unique_violation THEN PERFORM pg_sleep(0.05);
            END;
          END LOOP;
        END $$`);
    }
    await runner.query(`
      DO $$ BEGIN
        EXECUTE format('GRANT CREATE ON DATABASE %I TO ${OWNER_ROLE}', current_database());
      END $$`);
  }

  /** Roles stay: other databases of the server may use them. */
  async down(): Promise<void> {}
}
