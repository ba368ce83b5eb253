import { resolve } from 'node:path';
import { newId, streamId, type AnyNewEvent } from '#hotbed/contracts';
import { Leases } from '#hotbed/event-store';
import { newEvent, withTestDatabase } from '#hotbed/event-store/testing';
import { Bases } from '#hotbed/models';
import { until } from '#hotbed/messaging/testing';
import { workerLiveness } from './worker-liveness';

const SEEDLING = resolve(__dirname, '../../../../models/seedling');
const db = withTestDatabase();
const tenantId = newId();

/** A worker that holds its session lock and has said so in the log. */
async function aWorkerWith(name: string, baseDigest: string): Promise<Leases> {
  const workerId = newId();
  const ignore = (): void => undefined;
  const leases = await Leases.register({
    databaseUrl: db.url,
    pool: db.pool,
    workerId,
    onLost: ignore,
    onDisconnected: ignore,
  });
  const events: AnyNewEvent[] = [
    newEvent('WorkerStarted', tenantId, { workerId, identity: leases.identity.toString(), processId: process.pid }),
    newEvent('BaseModelLoaded', tenantId, {
      ...{ workerId, name, baseDigest, numericsId: 'f32-1', architecture: 'llama', parameterCount: 1 },
      ...{ contextLength: 64, tokenizerSize: 56, kernels: 'scalar', threads: 1 },
    }),
  ];
  await db.store.append({ writes: [{ streamId: streamId('worker', workerId), expected: 'none', events }] });
  return leases;
}

describe('loaded bases', () => {
  it('are those of workers that live, also where a dead one left no word', async () => {
    const bases = new Bases(db.store, SEEDLING, workerLiveness(db.transactions));
    await expect(bases.resolve(null)).rejects.toThrow('no worker has loaded a base');
    const first = await aWorkerWith('seedling', 'a'.repeat(64));
    const second = await aWorkerWith('other', 'b'.repeat(64));
    await expect(bases.resolve(null)).rejects.toThrow('name the base by name or digest; loaded: ');
    expect(await bases.resolve('other')).toMatchObject({ baseDigest: 'b'.repeat(64) });
    await second.close();
    await until('the dead worker to be noticed', async () => (await bases.loaded()).length === 1);
    expect(await bases.resolve(null)).toMatchObject({ name: 'seedling' });
    await expect(bases.resolve('other')).rejects.toMatchObject({ fields: [{ path: 'base' }] });
    // Its text is still at hand for what it did; the folder here is another base's.
    expect((await bases.textOf('a'.repeat(64))).name).toBe('seedling');
    await expect(bases.textOf('b'.repeat(64))).rejects.toMatchObject({ code: 'tokenizer_not_available' });
    await first.close();
  });
});
