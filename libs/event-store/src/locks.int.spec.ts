import { newId, streamId, type AppendItem } from '#hotbed/contracts';
import { aRecordReceived, withTestDatabase } from '#hotbed/event-store/testing';
import { PgEventStore } from './pg-event-store';
import { PgTransactions } from './unit-of-work';
import { createPool } from './pool';
import { verifyDatabase } from './verify/verify-database';

/** Park-Miller, so that a run's items are the same each time. */
function dice(seed: number): (sides: number) => number {
  let x = seed;
  return (sides) => (x = (x * 48_271) % 2_147_483_647) % sides;
}

describe('items over shared streams, names and keys', () => {
  const db = withTestDatabase();

  it('never deadlock, whatever order they name them in, from several processes and transactions', async () => {
    const tenant = newId();
    const keys = Array.from({ length: 24 }, () => newId());
    const roll = dice(20_261_130);
    const anItem = (n: number): AppendItem => {
      const chosen = new Set(Array.from({ length: 1 + roll(4) }, () => keys[roll(keys.length)]!));
      return {
        writes: [...chosen].map((key) => ({
          streamId: streamId('data-stream', key),
          expected: 'any',
          events: [aRecordReceived(tenant, key)],
        })),
        names: [`n${n}-b`, `n${n}-a`].map((name) => ({ tenantId: tenant, kind: 'test', name, id: newId() })),
        idempotency: { tenantId: tenant, key: `k${roll(400)}`, requestHash: 'same', answer: null },
      };
    };
    const items = Array.from({ length: 600 }, (_, n) => anItem(n));
    const pools = [0, 1, 2].map((i) => createPool(db.url, { applicationName: `process ${i}`, max: 6 }));
    const stores = pools.map((pool) => new PgEventStore(pool, db.blobs));
    const transactions = pools.map((pool) => new PgTransactions(pool, db.blobs));
    const results = await Promise.all(
      items.map((item, n) =>
        n % 5 === 0
          ? transactions[n % 3]!.run(async (uow) => (await uow.append([item]))[0]!)
          : stores[n % 3]!.append(item),
      ),
    );
    await Promise.all(pools.map((pool) => pool.end()));
    // One item per key wrote; all others were told its answer.
    const written = results.filter((result) => result.outcome === 'appended');
    expect(written).toHaveLength(new Set(items.map((item) => item.idempotency!.key)).size);
    const events = written.reduce(
      (sum, result) => sum + (result.outcome === 'appended' ? result.streams.length : 0),
      0,
    );
    expect(await verifyDatabase(db.url)).toMatchObject({ ok: true, head: { position: BigInt(events) } });
  });
});
