import { newId, streamId } from '#hotbed/contracts';
import { aRecordReceived, aStreamOfRecords, withTestDatabase } from '#hotbed/event-store/testing';
import { setTimeout as delay } from 'node:timers/promises';
import { LogListener } from './log-listener';
import { PgEventStore } from './pg-event-store';
import { PgTransactions } from './unit-of-work';
import { createPool } from './pool';
import { verifyDatabase } from './verify/verify-database';

const WRITERS = 16;
const EVENTS = 10_000;
const PER_WRITER = EVENTS / WRITERS;
const PER_APPEND = 25;

/** xorshift32, so that a run's pauses are the same each time. */
function pauses(seed: number): () => number {
  let x = seed;
  return () => {
    x ^= x << 13;
    x ^= x >>> 17;
    x ^= x << 5;
    return (x >>> 0) % 8;
  };
}

describe('emmett#336, Marten#1629, Eventuous#222: a slow transaction that commits after a faster one', () => {
  const db = withTestDatabase();

  it('is seen by every reader: 16 writers with random pauses, 10,000 events, no gap', async () => {
    const tenant = newId();
    const shared = Array.from({ length: 4 }, () => newId());
    const pools = Array.from({ length: 4 }, (_, i) => createPool(db.url, { applicationName: `writer ${i}`, max: 6 }));
    const stores = pools.map((pool) => new PgEventStore(pool, db.blobs));

    const write = async (writer: number): Promise<void> => {
      const pause = pauses(writer + 1);
      const pool = pools[writer % pools.length]!;
      const transactions = new PgTransactions(pool, db.blobs);
      for (let done = 0; done < PER_WRITER; done += PER_APPEND) {
        const item = aStreamOfRecords(tenant, shared[writer % shared.length]!, PER_APPEND);
        await delay(pause());
        if (writer % 4 === 3) {
          // Open before others, committed after them, and lingering between append and commit.
          await transactions.run(async (uow) => {
            await uow.query('SELECT pg_sleep($1)', [pause() / 1000]);
            await uow.append([item]);
            await uow.query('SELECT pg_sleep($1)', [pause() / 4000]);
          });
        } else {
          await stores[writer % stores.length]!.append(item);
        }
      }
    };

    const listener = await LogListener.start(db.url);
    const read = async (limit: number): Promise<bigint[]> => {
      const seen: bigint[] = [];
      while (seen.length < EVENTS) {
        const events = await db.store.readAll({ after: seen.at(-1) ?? 0n, limit });
        for (const event of events) seen.push(event.globalPosition);
        if (events.length === 0) await listener.waitBeyond(seen.at(-1) ?? 0n, 1000);
      }
      return seen;
    };

    const everything = Array.from({ length: EVENTS }, (_, i) => BigInt(i + 1));
    const [slow, fast] = await Promise.all([
      read(1000),
      read(97),
      ...Array.from({ length: WRITERS }, (_, writer) => write(writer)),
    ]);
    expect(slow).toEqual(everything);
    expect(fast).toEqual(everything);
    await listener.close();
    await Promise.all(pools.map((pool) => pool.end()));
    expect(await verifyDatabase(db.url)).toMatchObject({ ok: true, head: { position: BigInt(EVENTS) } });
  }, 60_000);
});

describe('typeorm#8583: positions are numbers, never text and never doubles', () => {
  const db = withTestDatabase();
  const tenant = newId();

  it('reads in order over 9 -> 10 and 99 -> 100', async () => {
    const stream = newId();
    for (let i = 0; i < 12; i++) await db.store.append(aStreamOfRecords(tenant, stream, 10));
    const positions = (events: { globalPosition: bigint }[]) => events.map((event) => event.globalPosition);
    expect(positions(await db.store.readAll({ after: 8n, limit: 3 }))).toEqual([9n, 10n, 11n]);
    expect(positions(await db.store.readAll({ after: 98n, limit: 3 }))).toEqual([99n, 100n, 101n]);
    const versions = await db.store.readStream(streamId('data-stream', stream), { after: 8n, upTo: 101n });
    expect(versions.map((event) => event.streamVersion)).toEqual(Array.from({ length: 93 }, (_, i) => BigInt(i + 9)));
    const filtered = await db.store.readAll({ after: 98n, limit: 3, categories: ['data-stream', 'adapter'] });
    expect(positions(filtered)).toEqual([99n, 100n, 101n]);
  });

  it('goes on beyond 2^53 without losing a digit', async () => {
    const stream = newId();
    const edge = 2n ** 53n;
    const admin = createPool(db.adminUrl, { applicationName: 'admin', max: 1 });
    await admin.query('SET ROLE NONE');
    await admin.query('UPDATE es.log_head SET position = $1', [edge - 2n]);
    await admin.query(`INSERT INTO es.streams VALUES ($1, 'data-stream', $2)`, [`data-stream:${stream}`, edge - 2n]);
    await admin.end();
    const results = [];
    for (let i = 0; i < 5; i++) {
      const events = [aRecordReceived(tenant, stream)];
      results.push(
        await db.store.append({
          writes: [{ streamId: streamId('data-stream', stream), expected: edge - 2n + BigInt(i), events }],
        }),
      );
    }
    expect(results.map((r) => (r.outcome === 'appended' ? r.lastPosition - edge : null))).toEqual([
      -1n,
      0n,
      1n,
      2n,
      3n,
    ]);
    const events = await db.store.readAll({ after: edge, limit: 10 });
    expect(events.map((e) => [e.globalPosition - edge, e.streamVersion - edge])).toEqual([
      [1n, 1n],
      [2n, 2n],
      [3n, 3n],
    ]);
    expect((await db.store.head()).position).toBe(edge + 3n);
  });
});
