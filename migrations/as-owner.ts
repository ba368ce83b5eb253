import type { QueryRunner } from 'typeorm';

/** Owns schema `es`: migrates, and lends its rights to the append function alone. */
export const OWNER_ROLE = 'hotbed_owner';
/** What every app runs as: reads the log, executes the append function, changes only its own rows. */
export const APP_ROLE = 'hotbed_app';

/** Runs the statements as the owner, so that tables and functions belong to it whoever migrates. */
export async function asOwner(runner: QueryRunner, ...statements: string[]): Promise<void> {
  // LOCAL: a failed migration's rollback takes the role back, too.
  await runner.query(`SET LOCAL ROLE ${OWNER_ROLE}`);
  for (const statement of statements) await runner.query(statement);
  await runner.query('RESET ROLE');
}

/** A right on the database itself: a copy or a restore of the database's content does not bring it along. */
export async function allowOwnerToCreateSchemas(runner: QueryRunner): Promise<void> {
  await runner.query(`
    DO $$ BEGIN
      IF NOT has_database_privilege('${OWNER_ROLE}', current_database(), 'CREATE') THEN
        EXECUTE format('GRANT CREATE ON DATABASE %I TO ${OWNER_ROLE}', current_database());
      END IF;
    END $$`);
}

/** A schema for an app's read model: the app role may read and write its tables, never change them. */
export async function createReadModelSchema(runner: QueryRunner, schema: string, ...tables: string[]): Promise<void> {
  await allowOwnerToCreateSchemas(runner);
  await asOwner(
    runner,
    `CREATE SCHEMA IF NOT EXISTS ${schema}`,
    `GRANT USAGE ON SCHEMA ${schema} TO ${APP_ROLE}`,
    ...tables,
    `GRANT SELECT, INSERT, UPDATE, DELETE, TRUNCATE ON ALL TABLES IN SCHEMA ${schema} TO ${APP_ROLE}`,
    `GRANT USAGE ON ALL SEQUENCES IN SCHEMA ${schema} TO ${APP_ROLE}`,
  );
}
