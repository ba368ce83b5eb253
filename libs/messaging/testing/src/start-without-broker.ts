import { freePort } from '../../../runtime/src/free-port';
import { until } from './until';

/** The part of a test database that is needed here. */
interface Database {
  readonly url: string;
  readonly blobFolder: string;
  readonly pool: { query(sql: string): Promise<{ rows: { count: bigint }[] }> };
}

interface App {
  start(): Promise<unknown>;
}

/**
 * An app that finds no broker fails in one line (the error's code is broker_unreachable) and leaves no connection to the
 * database open.
 */
export async function startWithoutBroker(
  db: Database,
  create: (env: Record<string, string>) => App | Promise<App>,
): Promise<void> {
  const sessions = async () => {
    const { rows } = await db.pool.query(
      `SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND application_name <> 'hotbed-test'`,
    );
    return Number(rows[0]!.count);
  };
  const before = await sessions();
  const env = {
    HOTBED_DATABASE_URL: db.url,
    HOTBED_BLOB_DIR: db.blobFolder,
    HOTBED_NATS_URL: `nats://127.0.0.1:${await freePort()}`,
  };
  const app = await create(env);
  await expect(app.start()).rejects.toMatchObject({ code: 'broker_unreachable' });
  await until('no connection is left', async () => (await sessions()) === before);
}
