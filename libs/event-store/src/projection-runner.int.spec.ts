import fc from 'fast-check';
import { newId, type AnyStoredEvent, type UnitOfWork } from '#hotbed/contracts';
import { aStreamOfRecords, withTestDatabase } from '#hotbed/event-store/testing';
import type { MigrationInterface, QueryRunner } from 'typeorm';
import { setTimeout as delay } from 'node:timers/promises';
import { MIGRATIONS, createReadModelSchema } from '../../../migrations';
import { LogListener } from './log-listener';
import { migrate } from './migrate';
import { ProjectionRunner, type Projection } from './projection-runner';

class CreateCounts1764500099999 implements MigrationInterface {
  async up(runner: QueryRunner): Promise<void> {
    await createReadModelSchema(
      runner,
      'counts',
      `CREATE TABLE counts.per_stream (stream_id text PRIMARY KEY, events bigint NOT NULL, trail text NOT NULL)`,
    );
  }
  async down(): Promise<void> {}
}

/** Counts events per stream and keeps their order, so that a lost, doubled or swapped event shows. */
const counts: Projection = {
  name: 'counts',
  version: 1,
  schema: 'counts',
  categories: ['data-stream'],
  async apply(events: readonly AnyStoredEvent[], uow: UnitOfWork) {
    for (const event of events) {
      await uow.query(
        `INSERT INTO per_stream AS p VALUES ($1, 1, $2)
         ON CONFLICT (stream_id) DO UPDATE SET events = p.events + 1, trail = p.trail || ',' || excluded.trail`,
        [event.streamId, event.globalPosition.toString()],
      );
    }
  },
  async reset(uow) {
    await uow.query('TRUNCATE per_stream');
  },
};

describe('a projection', () => {
  const db = withTestDatabase();
  const tenant = newId();
  let listener: LogListener;

  beforeAll(async () => {
    await migrate(db.ownerUrl, [...MIGRATIONS, CreateCounts1764500099999]);
    listener = await LogListener.start(db.url);
  });
  afterAll(() => listener.close());

  const runner = (overrides: Partial<ConstructorParameters<typeof ProjectionRunner>[0]> = {}): ProjectionRunner =>
    new ProjectionRunner({
      store: db.store,
      transactions: db.transactions,
      listener,
      projection: counts,
      batchSize: 7,
      ...overrides,
    });
  const table = async () => (await db.pool.query('SELECT * FROM counts.per_stream ORDER BY stream_id')).rows;
  const caughtUp = async (live: ProjectionRunner): Promise<void> => {
    const target = (await db.store.head()).position;
    const deadline = Date.now() + 15_000;
    while ((await live.position()) < target) {
      if (Date.now() > deadline)
        throw new Error('the projection did not catch up within 15 s', { cause: live.failure });
      await delay(10);
    }
  };

  it('has the same rows live and rebuilt, for any appends and batch sizes, with two runners racing', async () => {
    const streams = Array.from({ length: 4 }, () => newId());
    await fc.assert(
      fc.asyncProperty(
        fc.array(fc.tuple(fc.nat(3), fc.integer({ min: 1, max: 5 })), { minLength: 1, maxLength: 12 }),
        fc.integer({ min: 1, max: 9 }),
        async (appends, batchSize) => {
          const live = [runner({ batchSize, pollIntervalMs: 50 }), runner({ batchSize: 3, pollIntervalMs: 50 })];
          for (const one of live) one.start();
          await Promise.all(appends.map(([s, n]) => db.store.append(aStreamOfRecords(tenant, streams[s]!, n))));
          await caughtUp(live[0]!);
          await Promise.all(live.map((one) => one.stop()));
          const liveRows = await table();
          await runner({ batchSize }).rebuild();
          expect(await table()).toEqual(liveRows);
          const { rows } = await db.pool.query(
            `SELECT stream_id, count(*) AS events, string_agg(global_position::text, ',' ORDER BY global_position) AS trail
             FROM es.events WHERE category = 'data-stream' GROUP BY stream_id ORDER BY stream_id`,
          );
          expect(liveRows).toEqual(rows);
        },
      ),
      { numRuns: 8, seed: 42 },
    );
  }, 60_000);

  it('passes events of other categories without standing still', async () => {
    const other = runner({ projection: { ...counts, name: 'others', categories: ['worker'] } });
    await db.store.append(aStreamOfRecords(tenant, newId(), 3));
    expect(await other.catchUp()).toBe((await db.store.head()).position);
  });

  it('moves nothing when a batch fails, says why, and goes on when the cause is gone', async () => {
    let broken = true;
    const failing = runner({
      pollIntervalMs: 20,
      projection: {
        ...counts,
        name: 'failing',
        async apply(events, uow) {
          await uow.query(`INSERT INTO per_stream VALUES ($1, 0, 'x') ON CONFLICT DO NOTHING`, [
            `broken-${events.length}`,
          ]);
          if (broken) throw new Error('cannot apply');
        },
      },
    });
    failing.start();
    const deadline = Date.now() + 10_000;
    while (failing.failure === null && Date.now() < deadline) await delay(5);
    expect(failing.failure).toMatchObject({ message: 'cannot apply' });
    expect(await failing.position()).toBe(0n);
    expect((await table()).filter((row) => row.stream_id.startsWith('broken'))).toEqual([]);
    broken = false;
    await caughtUp(failing);
    expect(failing.failure).toBeNull();
    await failing.stop();
  });

  it('folds the log again for a new version, over the tables of the old one, whose runners stop', async () => {
    const old: Projection = { ...counts, name: 'versioned' };
    const oldRunner = runner({ projection: old, pollIntervalMs: 20 });
    await runner({ projection: old }).rebuild();
    const oldRows = await table();
    oldRunner.start();
    const newer: Projection = {
      ...old,
      version: 2,
      async apply(events, uow) {
        await counts.apply(events, uow);
        await uow.query(`UPDATE per_stream SET trail = '-' WHERE stream_id = ANY ($1)`, [
          events.map((e) => e.streamId),
        ]);
      },
    };
    const started = await Promise.all([1, 2, 3].map(() => runner({ projection: newer }).catchUp()));
    expect(new Set(started)).toEqual(new Set([(await db.store.head()).position]));
    expect(await table()).toEqual(oldRows.map((row) => ({ ...row, trail: '-' })));
    await db.store.append(aStreamOfRecords(tenant, newId()));
    const deadline = Date.now() + 10_000;
    while (oldRunner.failure === null && Date.now() < deadline) await delay(5);
    expect(oldRunner.failure).toMatchObject({ code: 'projection_superseded' });
    await oldRunner.stop();
  });

  it('fences a runner whose state is older than a rebuild', async () => {
    const projection: Projection = { ...counts, name: 'fenced', async apply() {}, async reset() {} };
    const slow = runner({ projection });
    await slow.catchUp();
    let rebuilt = false;
    const late = runner({
      projection,
      store: new Proxy(db.store, {
        get(target, property) {
          if (property !== 'readAll') return Reflect.get(target, property).bind(target);
          return async (options: Parameters<typeof target.readAll>[0]) => {
            const events = await target.readAll(options);
            // Between its read and its commit, the projection is rebuilt to the same position.
            if (!rebuilt) {
              rebuilt = true;
              await db.pool.query(`UPDATE es.projection SET epoch = epoch + 1 WHERE name = 'fenced'`);
            }
            return events;
          };
        },
      }),
    });
    await db.store.append(aStreamOfRecords(tenant, newId()));
    expect(await late.catchUp()).toBe((await db.store.head()).position);
    expect(rebuilt).toBe(true);
  });
});
