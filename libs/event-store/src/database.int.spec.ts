import pg from 'pg';
import { newId, streamId, type UnitOfWork } from '#hotbed/contracts';
import { aStreamOfRecords, withTestDatabase } from '#hotbed/event-store/testing';
import { PgEventStore } from './pg-event-store';
import { PgTransactions } from './unit-of-work';
import { createPool } from './pool';
import { migrate } from './migrate';

const tenant = newId();

async function withClient<T>(url: string, work: (client: pg.Client) => Promise<T>): Promise<T> {
  const client = new pg.Client({ connectionString: url });
  client.on('error', () => undefined);
  await client.connect();
  try {
    return await work(client);
  } finally {
    await client.end();
  }
}

describe('the database of the log', () => {
  const db = withTestDatabase();
  const rowsOf = async (stream: string) => (await db.store.readStream(streamId('data-stream', stream))).length;

  it('typeorm#691: a second row with the same identity raises, and no row is ever overwritten', async () => {
    await db.store.append(aStreamOfRecords(tenant, newId(), 3));
    await withClient(db.adminUrl, async (admin) => {
      const copy = `INSERT INTO es.events SELECT (e).* FROM (SELECT e FROM es.events e LIMIT 1) x`;
      await expect(admin.query(copy)).rejects.toMatchObject({ code: '23505' });
      for (const statement of [
        `UPDATE es.events SET actor = 'x'`,
        `DELETE FROM es.events`,
        `TRUNCATE es.events`,
        `INSERT INTO es.events SELECT * FROM es.events ON CONFLICT (global_position) DO UPDATE SET actor = 'x'`,
      ]) {
        await expect(admin.query(statement)).rejects.toMatchObject({ code: '23000' });
      }
    });
  });

  it('lets an app append through the function only', async () => {
    for (const statement of [
      `INSERT INTO es.events SELECT * FROM es.events`,
      `UPDATE es.log_head SET position = 0`,
      `DELETE FROM es.events`,
      `ALTER TABLE es.events DISABLE TRIGGER ALL`,
      `DROP TABLE es.events`,
      `UPDATE es.streams SET version = 0`,
      `UPDATE es.adapter_head SET applied_op_index = 0`,
      `INSERT INTO es.names VALUES (gen_random_uuid(), 'k', 'n', gen_random_uuid())`,
      `CREATE TABLE es.mine (a int)`,
    ]) {
      await expect(db.pool.query(statement)).rejects.toMatchObject({ code: '42501' });
    }
  });

  it('refuses a header that names another stream than the one that was checked', async () => {
    const header = { eventId: newId(), streamId: 'data-stream:other', category: 'data-stream', type: 'X' };
    const item = {
      writes: [{ stream: 'data-stream:mine', category: 'data-stream', expected: 'any', count: 1 }],
      ids: [],
    };
    await expect(
      db.pool.query('SELECT es.append($1, $2, $3)', [
        JSON.stringify([item]),
        [
          Buffer.from(
            JSON.stringify({
              ...header,
              schemaVersion: 1,
              tenantId: tenant,
              occurredAtMs: 1,
              actor: 'a',
              correlationId: 'c',
            }),
          ),
        ],
        [Buffer.from('{}')],
      ]),
    ).rejects.toMatchObject({ code: '23502', column: 'stream_id' });
  });

  it('typeorm#1014, #5811: Promise.all in a failing transaction writes nothing, during or after the rollback', async () => {
    const consumer = newId();
    const insert = (uow: UnitOfWork, i: number) =>
      uow.query(`INSERT INTO es.consumer_lane (consumer, stream_id) VALUES ($1, $2)`, [consumer, `s${i}`]);
    let kept: UnitOfWork | null = null;
    await expect(
      db.transactions.run(async (uow) => {
        kept = uow;
        await Promise.all([insert(uow, 1), uow.query('SELECT 1 / 0'), insert(uow, 2), insert(uow, 3)]);
      }),
    ).rejects.toMatchObject({ code: '22012' });
    await expect(insert(kept!, 4)).rejects.toThrow(/ended/);
    await expect(
      db.transactions.run(async (uow) => {
        void insert(uow, 5).catch(() => undefined);
        throw new Error('handler failed');
      }),
    ).rejects.toThrow('handler failed');
    // A statement that failed dooms the transaction even when its error was swallowed.
    await expect(
      db.transactions.run(async (uow) => {
        await insert(uow, 6);
        await uow.query('SELECT 1 / 0').catch(() => undefined);
      }),
    ).rejects.toMatchObject({ code: '22012' });
    const { rows } = await db.pool.query('SELECT * FROM es.consumer_lane WHERE consumer = $1', [consumer]);
    expect(rows).toEqual([]);
  });

  it('rolls rows and events back together when an append inside a transaction is refused', async () => {
    const stream = newId();
    const refused = db.transactions.run(async (uow) => {
      await uow.append([aStreamOfRecords(tenant, stream, 1, 'none'), aStreamOfRecords(tenant, stream, 1, 9n)]);
    });
    await expect(refused).rejects.toMatchObject({ code: 'version_conflict' });
    const swallowed = db.transactions.run(async (uow) => {
      await uow
        .append([aStreamOfRecords(tenant, stream, 1, 'none'), aStreamOfRecords(tenant, stream, 1, 9n)])
        .catch(() => undefined);
    });
    await expect(swallowed).rejects.toMatchObject({ code: 'version_conflict' });
    expect(await rowsOf(stream)).toBe(0);
  });

  it('typeorm#4866: 100 failing requests leak no connection', async () => {
    const pool = createPool(db.url, { applicationName: 'leak test', max: 2 });
    const transactions = new PgTransactions(pool, db.blobs);
    const store = new PgEventStore(pool, db.blobs);
    const failures = await Promise.allSettled(
      Array.from({ length: 100 }, (_, i) =>
        i % 2 === 0
          ? transactions.run((uow) => uow.query('SELECT no_such_column'))
          : store.append(aStreamOfRecords(tenant, newId(), 1, 5n)),
      ),
    );
    expect(failures.filter((f) => f.status === 'rejected')).toHaveLength(100);
    expect(pool.totalCount).toBeLessThanOrEqual(2);
    expect(pool.waitingCount).toBe(0);
    expect(pool.idleCount).toBe(pool.totalCount);
    expect(await transactions.run((uow) => uow.query<{ one: number }>('SELECT 1 AS one'))).toEqual([{ one: 1 }]);
    await pool.end();
  });

  it('writes once when the connection breaks and the commit is unknown', async () => {
    const pool = createPool(db.url, { applicationName: 'cut test', max: 4 });
    const store = new PgEventStore(pool, db.blobs);
    const stream = newId();
    let cutting = true;
    const versions: bigint[] = [];
    const write = async (): Promise<void> => {
      while (cutting) {
        const result = await store.append(aStreamOfRecords(tenant, stream));
        if (result.outcome === 'appended') versions.push(result.streams[0]!.firstVersion);
      }
    };
    const writers = Promise.all(Array.from({ length: 8 }, write));
    await withClient(db.adminUrl, async (admin) => {
      for (let cuts = 0; cuts < 20;) {
        const written = versions.length;
        const { rowCount } = await admin.query(
          `SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'cut test' AND state = 'active'`,
        );
        cuts += rowCount ?? 0;
        if (rowCount) while (versions.length === written) await new Promise((resolve) => setTimeout(resolve, 5));
      }
    });
    cutting = false;
    await writers;
    const events = await store.readStream(streamId('data-stream', stream));
    expect(versions.sort((a, b) => Number(a - b))).toEqual(events.map((event) => event.streamVersion));
    await pool.end();
  }, 30_000);

  it('says Unavailable, retryable, when PostgreSQL does not answer', async () => {
    const pool = createPool('postgres://nobody@127.0.0.1:9/none', { applicationName: 'down' });
    const store = new PgEventStore(pool, db.blobs);
    await expect(store.head()).rejects.toMatchObject({ kind: 'Unavailable', code: 'database_unavailable' });
    await expect(migrate('postgres://nobody@127.0.0.1:9/none')).rejects.toMatchObject({ kind: 'Unavailable' });
    await pool.end();
  });

  it('migrates once however many processes start at the same moment', async () => {
    const name = `${new URL(db.adminUrl).pathname.slice(1)}_fresh`;
    const at = (url: string): string => url.replace(/[^/]+$/, name);
    const owner = decodeURIComponent(new URL(db.ownerUrl).username);
    await withClient(db.adminUrl, (admin) => admin.query(`CREATE DATABASE ${name} OWNER ${owner}`));
    await Promise.all(Array.from({ length: 4 }, () => migrate(at(db.ownerUrl))));
    const tables = await withClient(at(db.adminUrl), (admin) =>
      admin.query<{ applied: string }>('SELECT count(*) AS applied FROM hotbed_migrations GROUP BY name'),
    );
    expect(tables.rows.every((row) => row.applied === '1')).toBe(true);
    const pool = createPool(at(db.url), { applicationName: 'fresh', max: 1 });
    await new PgEventStore(pool, db.blobs).append(aStreamOfRecords(tenant, newId()));
    await pool.end();
    await withClient(db.adminUrl, (admin) => admin.query(`DROP DATABASE ${name} WITH (FORCE)`));
  });
});
