import pg from 'pg';
import { newId } from '#hotbed/contracts';
import { withTestDatabase } from '#hotbed/event-store/testing';
import { setTimeout as delay } from 'node:timers/promises';
import { Leases, type Lease } from './leases';

async function until(condition: () => boolean | Promise<boolean>): Promise<void> {
  const deadline = Date.now() + 15_000;
  while (!(await condition())) {
    if (Date.now() > deadline) throw new Error('the condition did not come true within 15 s');
    await delay(10);
  }
}

describe('leases', () => {
  let admin: pg.Client;
  const registered: Leases[] = [];
  afterAll(async () => {
    for (const leases of registered) await leases.close();
    await admin.end();
  });
  const db = withTestDatabase();

  beforeAll(async () => {
    admin = new pg.Client({ connectionString: db.adminUrl });
    await admin.connect();
  });

  async function aWorker(ttlMs = 60_000) {
    const lost: Lease[] = [];
    const disconnections: Error[] = [];
    const leases = await Leases.register({
      databaseUrl: db.url,
      pool: db.pool,
      workerId: newId(),
      ttlMs,
      onLost: (lease) => lost.push(lease),
      onDisconnected: (error) => disconnections.push(error),
    });
    registered.push(leases);
    return { leases, lost, disconnections };
  }

  /** What a process that dies, or whose network breaks, looks like to the server. */
  const cut = (leases: Leases) =>
    admin.query(
      `SELECT pg_terminate_backend(l.pid) FROM pg_locks l
       WHERE l.locktype = 'advisory' AND l.objid::bigint = $1 AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())`,
      [leases.identity.toString()],
    );

  it('are held by one live worker; claiming again extends, releasing frees at once', async () => {
    const [a, b] = [await aWorker(), await aWorker()];
    expect(await a.leases.claim('adapter:1')).toEqual({ resource: 'adapter:1', epoch: 1n });
    expect(await a.leases.claim('adapter:1')).toEqual({ resource: 'adapter:1', epoch: 1n });
    expect(await b.leases.claim('adapter:1')).toBeNull();
    await a.leases.release('adapter:1');
    expect(await b.leases.claim('adapter:1')).toEqual({ resource: 'adapter:1', epoch: 2n });
    expect(await a.leases.claim('adapter:1')).toBeNull();
  });

  it('go to exactly one of many claimers', async () => {
    const workers = await Promise.all(Array.from({ length: 4 }, () => aWorker()));
    const claims = await Promise.all(workers.map((worker) => worker.leases.claim('adapter:2')));
    expect(claims.filter((claim) => claim !== null)).toHaveLength(1);
  });

  it('are taken over at once when their owner dies, with a higher epoch; the owner is told', async () => {
    const [a, b] = [await aWorker(), await aWorker()];
    const lease = (await a.leases.claim('adapter:3'))!;
    await cut(a.leases);
    await until(() => a.disconnections.length === 1);
    expect(a.lost).toEqual([lease]);
    expect(await b.leases.claim('adapter:3')).toEqual({ resource: 'adapter:3', epoch: lease.epoch + 1n });
    await expect(a.leases.claim('adapter:4')).rejects.toMatchObject({ code: 'leases_disconnected' });
  });

  it('are taken from a live owner once they expired by the clock of the database; it is told at its next renewal', async () => {
    const [a, b] = [await aWorker(3000), await aWorker()];
    const lease = (await a.leases.claim('adapter:5'))!;
    expect(await b.leases.claim('adapter:5')).toBeNull();
    await admin.query(
      `UPDATE es.lease SET expires_at = clock_timestamp() - interval '1 s' WHERE resource = 'adapter:5'`,
    );
    expect(await b.leases.claim('adapter:5')).toEqual({ resource: 'adapter:5', epoch: lease.epoch + 1n });
    await until(() => a.lost.length === 1);
    expect(a.lost).toEqual([lease]);
    expect(a.disconnections).toEqual([]);
    expect(a.leases.leases).toEqual([]);
  });

  it('are renewed while their owner lives', async () => {
    const a = await aWorker(300);
    await a.leases.claim('adapter:6');
    const expiry = async () =>
      (await admin.query<{ t: string }>(`SELECT expires_at::text AS t FROM es.lease WHERE resource = 'adapter:6'`))
        .rows[0]!.t;
    const first = await expiry();
    await until(async () => (await expiry()) !== first);
    expect(a.lost).toEqual([]);
  });
});
