import 'reflect-metadata';
import pg from 'pg';
import { DataSource, type MigrationInterface } from 'typeorm';
import { MIGRATIONS } from '../../../migrations';
import { withDomainErrors } from './database-errors';

/** Advisory key of the migration lock; negative, as worker identities are positive. */
const MIGRATION_LOCK = '-7204637091850';

export function dataSource(databaseUrl: string, migrations: readonly (new () => MigrationInterface)[] = MIGRATIONS) {
  return new DataSource({
    type: 'postgres',
    url: databaseUrl,
    synchronize: false,
    logging: false,
    entities: [],
    migrations: [...migrations],
    migrationsTableName: 'hotbed_migrations',
    migrationsTransactionMode: 'each',
    poolSize: 2,
  });
}

/**
 * Brings the database up to date. Safe with any number of processes starting at once: one migrates, the others wait
 * and find nothing to do. The URL's user needs CREATEROLE and CREATE on the database the first time.
 * @throws Unavailable when PostgreSQL does not answer
 */
export async function migrate(
  databaseUrl: string,
  migrations: readonly (new () => MigrationInterface)[] = MIGRATIONS,
): Promise<void> {
  const lock = new pg.Client({ connectionString: databaseUrl, application_name: 'hotbed-migrate' });
  lock.on('error', () => undefined);
  await withDomainErrors(() => lock.connect());
  try {
    await lock.query('SELECT pg_advisory_lock($1)', [MIGRATION_LOCK]);
    const source = await dataSource(databaseUrl, migrations).initialize();
    try {
      await source.runMigrations();
    } finally {
      await source.destroy();
    }
  } finally {
    await lock.end();
  }
}
