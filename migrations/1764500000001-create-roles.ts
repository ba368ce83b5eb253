import type { MigrationInterface, QueryRunner } from 'typeorm';
import { APP_ROLE, OWNER_ROLE, allowOwnerToCreateSchemas } from './as-owner';

/**
 * Roles belong to the whole server: an administrator or another database's migration may have made them, even at this
 * moment. Where the migrating user can lend the application role to itself, one database URL serves both; otherwise
 * apps log in as the application role.
 */
export class CreateRoles1764500000001 implements MigrationInterface {
  async up(runner: QueryRunner): Promise<void> {
    for (const role of [OWNER_ROLE, APP_ROLE]) {
      await runner.query(`
        DO $$ BEGIN
          IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = '${role}') THEN
            CREATE ROLE ${role} NOLOGIN;
          END IF;
        EXCEPTION
          WHEN duplicate_object OR unique_violation THEN NULL;
          WHEN insufficient_privilege THEN
            RAISE EXCEPTION 'database user % may not create the role ${role}', current_user
              USING HINT = 'Give it CREATEROLE, or create ${OWNER_ROLE} and ${APP_ROLE} and make it a member of both.';
        END $$`);
      // Concurrent grants of one role touch one catalogue row ("tuple concurrently updated"): the lock is per database.
      await runner.query(`
        DO $$ BEGIN
          FOR attempt IN 1..40 LOOP
            BEGIN
              IF NOT pg_has_role(current_user, '${role}', 'MEMBER') THEN
                EXECUTE format('GRANT ${role} TO %I', current_user);
              END IF;
              EXIT;
            EXCEPTION
              WHEN internal_error OR unique_violation THEN PERFORM pg_sleep(0.05);
              WHEN insufficient_privilege THEN EXIT;
            END;
          END LOOP;
          IF '${role}' = '${OWNER_ROLE}' AND NOT pg_has_role(current_user, '${role}', 'MEMBER') THEN
            RAISE EXCEPTION 'database user % is no member of the role ${role}', current_user
              USING HINT = 'As an administrator: GRANT ${role} TO that user.';
          END IF;
        END $$`);
    }
    await allowOwnerToCreateSchemas(runner);
  }

  /** Roles stay: other databases of the server may use them. */
  async down(): Promise<void> {}
}
