import { EVENTS, PAYLOAD_LIMIT_BYTES, VersionConflict, newId, streamId, type AppendItem } from '#hotbed/contracts';
import { aRecordReceived, aStreamOfRecords, newEvent, withTestDatabase } from '#hotbed/event-store/testing';
import { createPool } from './pool';
import { PgEventStore } from './pg-event-store';
import { verifyDatabase } from './verify/verify-database';

const tenant = newId();

describe('append', () => {
  const db = withTestDatabase();

  it('gives back what was appended, with positions and versions from 1', async () => {
    const stream = newId();
    const event = aRecordReceived(tenant, stream, { prompt: 'zwölf 🌱', metadata: { a: '1' } });
    const result = await db.store.append({
      writes: [{ streamId: streamId('data-stream', stream), expected: 'none', events: [event] }],
    });
    expect(result).toMatchObject({ outcome: 'appended', streams: [{ firstVersion: 1n, lastVersion: 1n }] });
    const [stored] = await db.store.readStream(streamId('data-stream', stream));
    expect(stored).toMatchObject({ ...event, streamVersion: 1n, category: 'data-stream', keyId: null });
  });

  it('takes all four expected versions and refuses each when it is wrong', async () => {
    const stream = newId();
    const append = (expected: 'any' | 'none' | 'exists' | bigint) =>
      db.store.append(aStreamOfRecords(tenant, stream, 1, expected));
    await expect(append('exists')).rejects.toBeInstanceOf(VersionConflict);
    await expect(append(1n)).rejects.toBeInstanceOf(VersionConflict);
    await append('none');
    await expect(append('none')).rejects.toBeInstanceOf(VersionConflict);
    await append('exists');
    await append(2n);
    await append('any');
    await expect(append(2n)).rejects.toMatchObject({ context: { expected: '2', actual: '4' } });
    expect(await db.store.readStream(streamId('data-stream', stream))).toHaveLength(4);
  });

  it('Eventuous#553: 20 parallel appends with one expected version: one success, 19 conflicts', async () => {
    const stream = newId();
    await db.store.append(aStreamOfRecords(tenant, stream));
    const pools = [0, 1].map(() => createPool(db.url, { applicationName: 'other process', max: 4 }));
    const stores = [db.store, ...pools.map((pool) => new PgEventStore(pool, db.blobs))];
    const results = await Promise.allSettled(
      Array.from({ length: 20 }, (_, i) => stores[i % 3]!.append(aStreamOfRecords(tenant, stream, 1, 1n))),
    );
    await Promise.all(pools.map((pool) => pool.end()));
    const refused = results.filter((r) => r.status === 'rejected').map((r) => r.reason as unknown);
    expect(refused).toHaveLength(19);
    for (const error of refused) expect(error).toBeInstanceOf(VersionConflict);
    expect(await db.store.readStream(streamId('data-stream', stream))).toHaveLength(2);
  });

  it('answers each item of a group by itself: a refused neighbour changes nothing', async () => {
    const [good, bad] = [newId(), newId()];
    const results = await Promise.allSettled([
      db.store.append(aStreamOfRecords(tenant, good, 2, 'none')),
      db.store.append(aStreamOfRecords(tenant, bad, 1, 5n)),
      db.store.append(aStreamOfRecords(tenant, good, 1, 2n)),
    ]);
    expect(results.map((r) => r.status)).toEqual(['fulfilled', 'rejected', 'fulfilled']);
    expect(await db.store.readStream(streamId('data-stream', bad))).toEqual([]);
    expect((await db.store.readStream(streamId('data-stream', good))).map((e) => e.streamVersion)).toEqual([
      1n,
      2n,
      3n,
    ]);
  });

  it('writes an item to all of its streams or to none', async () => {
    const [first, second] = [newId(), newId()];
    await db.store.append(aStreamOfRecords(tenant, second));
    const both = (expected: bigint): AppendItem => ({
      writes: [
        { streamId: streamId('data-stream', first), expected: 'none', events: [aRecordReceived(tenant, first)] },
        { streamId: streamId('data-stream', second), expected, events: [aRecordReceived(tenant, second)] },
      ],
    });
    await expect(db.store.append(both(7n))).rejects.toBeInstanceOf(VersionConflict);
    expect(await db.store.readStream(streamId('data-stream', first))).toEqual([]);
    const result = await db.store.append(both(1n));
    expect(result).toMatchObject({ streams: [{ lastVersion: 1n }, { lastVersion: 2n }] });
  });

  it('returns the stored answer for the same idempotency key, and refuses it with other content', async () => {
    const stream = newId();
    const keyed = (requestHash: string, key = 'k1', answer: unknown = { recordId: 'r', n: [1, null] }): AppendItem => ({
      ...aStreamOfRecords(tenant, stream),
      idempotency: { tenantId: tenant, key, requestHash, answer },
    });
    expect(await db.store.append(keyed('h1'))).toMatchObject({ outcome: 'appended' });
    expect(await db.store.append(keyed('h1', 'k1', 'other'))).toEqual({
      outcome: 'replayed',
      answer: { recordId: 'r', n: [1, null] },
    });
    await expect(db.store.append(keyed('h2'))).rejects.toMatchObject({ code: 'idempotency_conflict' });
    const twins = await Promise.all(Array.from({ length: 10 }, () => db.store.append(keyed('h', 'k2'))));
    expect(twins.filter((r) => r.outcome === 'appended')).toHaveLength(1);
    const otherTenant = newId();
    const foreign = { ...keyed('h9'), idempotency: { tenantId: otherTenant, key: 'k1', requestHash: 'h9', answer: 1 } };
    expect(await db.store.append(foreign)).toMatchObject({ outcome: 'appended' });
    expect(await db.store.readStream(streamId('data-stream', stream))).toHaveLength(3);
  });

  it('stores no key for a refused item', async () => {
    const stream = newId();
    const item = (expected: bigint | 'none'): AppendItem => ({
      ...aStreamOfRecords(tenant, stream, 1, expected),
      idempotency: { tenantId: tenant, key: 'refused', requestHash: 'h', answer: null },
    });
    await expect(db.store.append(item(3n))).rejects.toBeInstanceOf(VersionConflict);
    expect(await db.store.append(item('none'))).toMatchObject({ outcome: 'appended' });
  });

  it('mlflow#22635: 50 parallel registrations of names: each name once, numbers 1..50 without a race', async () => {
    const claim = (name: string): AppendItem => {
      const id = newId();
      return {
        ...aStreamOfRecords(tenant, id, 1, 'none'),
        names: [{ tenantId: tenant, kind: 'data-stream', name, id }],
      };
    };
    const same = await Promise.allSettled(Array.from({ length: 50 }, () => db.store.append(claim('one-name'))));
    expect(same.filter((r) => r.status === 'fulfilled')).toHaveLength(1);
    expect(same.filter((r) => r.status === 'rejected' && r.reason.code === 'name_taken')).toHaveLength(49);
    expect(await db.store.idOfName(tenant, 'data-stream', 'one-name')).not.toBeNull();
    expect(await db.store.idOfName(newId(), 'data-stream', 'one-name')).toBeNull();
    const numbered = newId();
    const versions = await Promise.all(
      Array.from({ length: 50 }, async () => {
        const result = await db.store.append(aStreamOfRecords(tenant, numbered));
        return result.outcome === 'appended' ? Number(result.streams[0]!.lastVersion) : 0;
      }),
    );
    expect(versions.sort((a, b) => a - b)).toEqual(Array.from({ length: 50 }, (_, i) => i + 1));
  });

  it('refuses an event id that is in the log, without harm to its group', async () => {
    const stream = newId();
    const event = aRecordReceived(tenant, stream);
    const item = (): AppendItem => ({
      writes: [{ streamId: streamId('data-stream', stream), expected: 'any', events: [event] }],
    });
    await db.store.append(item());
    const results = await Promise.allSettled([
      db.store.append(item()),
      db.store.append(aStreamOfRecords(tenant, stream)),
    ]);
    expect(results[0]).toMatchObject({ reason: { code: 'event_exists' } });
    expect(results[1]).toMatchObject({ status: 'fulfilled' });
    // Twice in one group: the function itself fails, and its items are tried one by one.
    const twin = aRecordReceived(tenant, stream);
    const twins = await Promise.allSettled(
      [1, 2].map(() =>
        db.store.append({ writes: [{ streamId: streamId('data-stream', stream), expected: 'any', events: [twin] }] }),
      ),
    );
    expect(twins.map((r) => r.status).sort()).toEqual(['fulfilled', 'rejected']);
  });

  it('refuses payloads and texts that cannot be stored, naming the field', async () => {
    const stream = newId();
    const write = (event: ReturnType<typeof aRecordReceived>) =>
      db.store.append({ writes: [{ streamId: streamId('data-stream', stream), expected: 'any', events: [event] }] });
    await expect(write(aRecordReceived(tenant, stream, { prompt: '' }))).rejects.toMatchObject({
      kind: 'InvalidInput',
      fields: [{ path: 'RecordReceived.content.prompt' }],
    });
    await expect(write(aRecordReceived(tenant, stream, { prompt: 'a\u0000b' }))).rejects.toMatchObject({
      kind: 'InvalidInput',
      fields: [{ path: 'RecordReceived.content.prompt' }],
    });
    await expect(write(aRecordReceived(tenant, stream, { metadata: { k: '\ud800' } }))).rejects.toMatchObject({
      fields: [{ path: 'RecordReceived.content.metadata.k' }],
    });
    expect(await db.store.readStream(streamId('data-stream', stream))).toEqual([]);
  });

  it('lets an app append only the types that it owns', async () => {
    const stream = newId();
    const write = (actor: string) =>
      db.store.append({
        writes: [
          {
            streamId: streamId('data-stream', stream),
            expected: 'any',
            events: [aRecordReceived(tenant, stream, {}, { actor })],
          },
        ],
      });
    expect(EVENTS.RecordReceived.owners).toEqual(['ingest']);
    await write('app:ingest');
    await write('producer:p1');
    await expect(write('app:gateway')).rejects.toMatchObject({ kind: 'Forbidden', code: 'not_owner' });
    await expect(
      db.store.append({
        writes: [{ streamId: streamId('adapter', stream), expected: 'any', events: [aRecordReceived(tenant, stream)] }],
      }),
    ).rejects.toMatchObject({ kind: 'InvalidInput', fields: [{ path: 'type' }] });
  });

  it('keeps a payload over 256 KiB in the blob store and gives it back', async () => {
    const stream = newId();
    const key = 'k'.repeat(256);
    const metadata = Object.fromEntries(Array.from({ length: 300 }, (_, i) => [`field-${i}`, 'v'.repeat(1024)]));
    const event = newEvent('RecordReceived', tenant, {
      recordId: newId(),
      dataStreamId: stream,
      identity: { kind: 'key', key },
      content: { prompt: 'big', answer: null, subjectIds: [], metadata },
    });
    await db.store.append({
      writes: [{ streamId: streamId('data-stream', stream), expected: 'any', events: [event] }],
    });
    const { rows } = await db.pool.query<{ size: number; data: { $blob: { size: number } } }>(
      'SELECT octet_length(payload_bytes) AS size, data FROM es.events WHERE event_id = $1',
      [event.eventId],
    );
    expect(rows[0]!.size).toBeLessThan(300);
    expect(rows[0]!.data.$blob.size).toBeGreaterThan(PAYLOAD_LIMIT_BYTES);
    const [stored] = await db.store.readStream(streamId('data-stream', stream));
    expect(stored!.payload).toEqual(event.payload);
  });

  it('leaves a chain that verifies', async () => {
    expect(await verifyDatabase(db.url)).toMatchObject({ ok: true });
  });
});
