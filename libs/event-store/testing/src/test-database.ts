import { createHash, randomBytes } from 'node:crypto';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import pg from 'pg';
import { MIGRATIONS } from '../../../../migrations';
import { FileBlobStore } from '../../src/file-blob-store';
import { PgConsumerLane } from '../../src/consumer-lane';
import { migrate } from '../../src/migrate';
import { PgEventStore } from '../../src/pg-event-store';
import { PgTransactions } from '../../src/unit-of-work';
import { WorkList } from '../../src/work-list';
import { createPool } from '../../src/pool';
import { testServer, type TestServer } from './test-server';

/** A fresh, migrated database with everything that stands on it. */
export interface TestDatabase {
  /** As an app connects. */
  url: string;
  /** As migrations connect. */
  ownerUrl: string;
  /** As an administrator connects, who may bypass triggers. */
  adminUrl: string;
  pool: pg.Pool;
  blobFolder: string;
  blobs: FileBlobStore;
  store: PgEventStore;
  transactions: PgTransactions;
  lanes: PgConsumerLane;
  workList: WorkList;
}

/** @returns the database and the way to drop it again */
export async function createTestDatabase(): Promise<{ database: TestDatabase; drop: () => Promise<void> }> {
  const server = await testServer();
  const template = await templateDatabase(server);
  const name = `hotbed_test_${process.pid}_${randomBytes(6).toString('hex')}`;
  await asAdmin(server, (client) =>
    client.query(`CREATE DATABASE ${name} TEMPLATE ${template} OWNER ${ownerOf(server)}`),
  );
  const url = `${server.app}/${name}`;
  const pool = createPool(url, { applicationName: 'hotbed-test', max: 16 });
  const blobFolder = mkdtempSync(join(tmpdir(), 'hotbed-test-blobs-'));
  const blobs = new FileBlobStore({ root: blobFolder });
  const transactions = new PgTransactions(pool, blobs);
  return {
    database: {
      url,
      ownerUrl: `${server.owner}/${name}`,
      adminUrl: `${server.admin}/${name}`,
      pool,
      blobFolder,
      blobs,
      store: new PgEventStore(pool, blobs),
      transactions,
      lanes: new PgConsumerLane(transactions, blobs),
      workList: new WorkList(pool, blobs),
    },
    drop: async () => {
      await pool.end();
      await dropDatabase(server, name);
      rmSync(blobFolder, { recursive: true, force: true });
    },
  };
}

/**
 * For spec files: one fresh database for the file, made before its tests and dropped after them.
 * @example const db = withTestDatabase(); it('...', async () => { await db.store.append(...) });
 */
export function withTestDatabase(): TestDatabase {
  const holder = {} as TestDatabase;
  let drop: (() => Promise<void>) | null = null;
  beforeAll(async () => {
    const created = await createTestDatabase();
    drop = created.drop;
    Object.assign(holder, created.database);
  }, 90_000);
  afterAll(async () => {
    await drop?.();
  }, 30_000);
  return holder;
}

/**
 * A spec's own clients may still be open here (hooks run in the order of their definition); cutting them off would fail
 * its suite. Such a database stays: the embedded server goes with all of them at the end of the run.
 */
async function dropDatabase(server: TestServer, name: string): Promise<void> {
  await asAdmin(server, async (client) => {
    for (let attempt = 0; attempt < 20; attempt++) {
      const { rowCount } = await client.query('SELECT FROM pg_stat_activity WHERE datname = $1', [name]);
      if (rowCount === 0) return void (await client.query(`DROP DATABASE IF EXISTS ${name}`));
      if (server.endsWithRun) return;
      await delay(50);
    }
  });
}

/** Migrated once per server and state of the migrations; copying it takes a fraction of migrating anew. */
async function templateDatabase(server: TestServer): Promise<string> {
  const content = MIGRATIONS.map((migration) => `${migration.name}${String(migration)}`).join('');
  const name = `hotbed_template_${createHash('sha256').update(content).digest('hex').slice(0, 16)}`;
  await asAdmin(server, async (client) => {
    await client.query('SELECT pg_advisory_lock($1)', [TEMPLATE_LOCK]);
    if ((await client.query('SELECT FROM pg_database WHERE datname = $1', [name])).rowCount !== 0) return;
    const building = `${name}_building`;
    await client.query(`DROP DATABASE IF EXISTS ${building} WITH (FORCE)`);
    await client.query(`CREATE DATABASE ${building} OWNER ${ownerOf(server)}`);
    await migrate(`${server.owner}/${building}`);
    await client.query(`ALTER DATABASE ${building} RENAME TO ${name}`);
  });
  return name;
}

function ownerOf(server: TestServer): string {
  return pg.escapeIdentifier(decodeURIComponent(new URL(server.owner).username));
}

const TEMPLATE_LOCK = '-7204637091851';

async function asAdmin<T>(server: TestServer, work: (client: pg.Client) => Promise<T>): Promise<T> {
  const client = new pg.Client({ connectionString: `${server.admin}/postgres` });
  await client.connect();
  try {
    return await work(client);
  } finally {
    await client.end();
  }
}
