import { newId, streamId, VersionConflict } from '#hotbed/contracts';
import { aRecordReceived, aStreamOfRecords, withTestDatabase } from '#hotbed/event-store/testing';

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
});
