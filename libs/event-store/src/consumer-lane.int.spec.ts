import pg from 'pg';
import { newId, streamId, type AnyStoredEvent, type UnitOfWork } from '#hotbed/contracts';
import { aRecordReceived, aStreamOfRecords, withTestDatabase } from '#hotbed/event-store/testing';

const tenant = newId();

describe('a consumer lane', () => {
  let admin: pg.Client;
  afterAll(() => admin.end());
  const db = withTestDatabase();
  beforeAll(async () => {
    admin = new pg.Client({ connectionString: db.adminUrl });
    await admin.connect();
  });

  async function aStreamWith(events: number): Promise<string> {
    const key = newId();
    for (let i = 0; i < events; i++) await db.store.append(aStreamOfRecords(tenant, key));
    return streamId('data-stream', key);
  }

  const cursor = async (consumer: string, stream: string): Promise<bigint> => {
    const { rows } = await db.pool.query<{ version: bigint }>(
      'SELECT version FROM es.consumer_lane WHERE consumer = $1 AND stream_id = $2',
      [consumer, stream],
    );
    return rows[0]?.version ?? 0n;
  };

  it('handles every event up to the version in order, whatever arrives first, and each once', async () => {
    const stream = await aStreamWith(5);
    const seen: bigint[] = [];
    const handler = async (events: readonly AnyStoredEvent[]): Promise<void> => {
      seen.push(...events.map((event) => event.streamVersion));
    };
    expect(await db.lanes.advance('c', stream, 3n, handler)).toBe('handled');
    expect(await db.lanes.advance('c', stream, 1n, handler)).toBe('up_to_date');
    expect(await db.lanes.advance('c', stream, 3n, handler)).toBe('up_to_date');
    expect(await db.lanes.advance('c', stream, 5n, handler)).toBe('handled');
    expect(seen).toEqual([1n, 2n, 3n, 4n, 5n]);
  });

  it('lets 10 deliveries of one message at once take effect once', async () => {
    const stream = await aStreamWith(2);
    let effects = 0;
    const outcomes = await Promise.all(
      Array.from({ length: 10 }, () =>
        db.lanes.advance('once', stream, 2n, async (events) => {
          effects += events.length;
        }),
      ),
    );
    expect(outcomes.filter((outcome) => outcome === 'handled')).toHaveLength(1);
    expect(effects).toBe(2);
  });

  it('murmur#133: a throwing handler moves nothing', async () => {
    const stream = await aStreamWith(2);
    const failing = db.lanes.advance('m', stream, 2n, async (_, uow) => {
      await uow.query(`INSERT INTO es.consumer_lane (consumer, stream_id) VALUES ('m-effect', $1)`, [stream]);
      throw new Error('handler failed');
    });
    await expect(failing).rejects.toThrow('handler failed');
    expect(await cursor('m', stream)).toBe(0n);
    const { rows } = await db.pool.query(`SELECT FROM es.consumer_lane WHERE consumer = 'm-effect'`);
    expect(rows).toEqual([]);
  });

  it('wolverine#1677: cursor, effect and own events are one transaction: a death between them leaves none', async () => {
    const stream = await aStreamWith(1);
    const ownKey = newId();
    const effect = async (uow: UnitOfWork): Promise<void> => {
      await uow.query(`INSERT INTO es.consumer_lane (consumer, stream_id) VALUES ('w-effect', $1)`, [stream]);
      const events = [aRecordReceived(tenant, ownKey)];
      await uow.append([{ writes: [{ streamId: streamId('data-stream', ownKey), expected: 'none', events }] }]);
    };
    const dying = db.lanes.advance('w', stream, 1n, async (_, uow) => {
      await effect(uow);
      // The process dies before the commit: its session is gone.
      const [session] = await uow.query<{ pid: number }>('SELECT pg_backend_pid() AS pid');
      await admin.query('SELECT pg_terminate_backend($1)', [session!.pid]);
      await uow.query('SELECT 1');
    });
    await expect(dying).rejects.toMatchObject({ kind: 'Unavailable' });
    expect(await cursor('w', stream)).toBe(0n);
    expect(await db.store.readStream(streamId('data-stream', ownKey))).toEqual([]);
    for (let delivery = 0; delivery < 3; delivery++) {
      await db.lanes.advance('w', stream, 1n, (_, uow) => effect(uow));
    }
    expect(await cursor('w', stream)).toBe(1n);
    expect(await db.store.readStream(streamId('data-stream', ownKey))).toHaveLength(1);
  });

  it('handles a long stream in several transactions and loses nothing', async () => {
    const key = newId();
    await db.store.append(aStreamOfRecords(tenant, key, 600));
    const seen: bigint[] = [];
    await db.lanes.advance('long', streamId('data-stream', key), 600n, async (events) => {
      seen.push(...events.map((event) => event.streamVersion));
    });
    expect(seen).toEqual(Array.from({ length: 600 }, (_, i) => BigInt(i + 1)));
  });

  it('refuses a version that the log does not have', async () => {
    const stream = await aStreamWith(1);
    const handler = async (): Promise<void> => undefined;
    await expect(db.lanes.advance('ahead', stream, 2n, handler)).rejects.toMatchObject({ code: 'event_not_visible' });
  });

  it('counts failed attempts per version in the database', async () => {
    const stream = await aStreamWith(2);
    expect(await db.lanes.recordFailure('f', stream, 1n, 'first')).toBe(1);
    expect(await db.lanes.recordFailure('f', stream, 1n, 'a \u0000 in a text')).toBe(2);
    await db.lanes.advance('f', stream, 1n, async () => undefined);
    expect(await db.lanes.recordFailure('f', stream, 2n, 'third')).toBe(1);
  });

  it('parks on a poisoned message with exactly one dead letter, while other lanes flow, and resumes in order', async () => {
    const [poisoned, healthy] = [await aStreamWith(3), await aStreamWith(1)];
    await db.lanes.advance('p', poisoned, 1n, async () => undefined);
    await db.lanes.recordFailure('p', poisoned, 2n, 'poison');
    await Promise.all([1, 2, 3].map(() => db.lanes.park('p', poisoned, 2n, 'poison')));
    expect(await db.lanes.deadLetters('p')).toMatchObject([
      { streamId: poisoned, version: 2n, error: 'poison', attempts: 1 },
    ]);
    await expect(db.lanes.advance('p', poisoned, 3n, async () => undefined)).rejects.toMatchObject({
      code: 'lane_parked',
    });
    expect(await db.lanes.advance('p', healthy, 1n, async () => undefined)).toBe('handled');
    expect(await db.lanes.resumed('p')).toEqual([]);
    await db.lanes.resume('p', poisoned);
    expect(await db.lanes.resumed('p')).toEqual([{ streamId: poisoned, failedVersion: 2n, streamVersion: 3n }]);
    const seen: bigint[] = [];
    await db.lanes.advance('p', poisoned, 3n, async (events) => {
      seen.push(...events.map((event) => event.streamVersion));
    });
    expect(seen).toEqual([2n, 3n]);
    expect(await db.lanes.deadLetters('p')).toEqual([]);
    expect(await db.lanes.resumed('p')).toEqual([]);
    // Nothing is parked any more, and no lane of that name ever was.
    await expect(db.lanes.resume('p', poisoned)).rejects.toMatchObject({ kind: 'NotFound' });
    await expect(db.lanes.resume('p', streamId('data-stream', newId()))).rejects.toMatchObject({ kind: 'NotFound' });
  });
});
