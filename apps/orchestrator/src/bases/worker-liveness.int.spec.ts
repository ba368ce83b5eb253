import { resolve } from 'node:path';
import { newId, streamId, type AnyNewEvent } from '#hotbed/contracts';
import { Leases } from '#hotbed/event-store';
import { newEvent, withTestDatabase } from '#hotbed/event-store/testing';
import { Bases, openModelFolder } from '#hotbed/models';
import { until } from '#hotbed/messaging/testing';
import { workerLiveness } from './worker-liveness';

const SEEDLING = resolve(__dirname, '../../../../models/seedling');
const db = withTestDatabase();
const tenantId = newId();

function register(workerId: string): Promise<Leases> {
  const ignore = (): void => undefined;
  return Leases.register({ databaseUrl: db.url, pool: db.pool, workerId, onLost: ignore, onDisconnected: ignore });
}

function started(workerId: string, { identity }: Leases): AnyNewEvent {
  return newEvent('WorkerStarted', tenantId, { workerId, identity: identity.toString(), processId: process.pid });
}

/** A worker that holds its session lock and has said so in the log. Its tokenizer: the seedling's, unless given. */
async function aWorkerWith(
  name: string,
  baseDigest: string,
  {
    workerId = newId(),
    tokenizer,
    numericsId = 'f32-1',
  }: { workerId?: string; tokenizer?: string; numericsId?: string } = {},
): Promise<Leases> {
  const leases = await register(workerId);
  const tokenizerDigest = tokenizer ?? (await openModelFolder(SEEDLING)).tokenizerDigest;
  const events: AnyNewEvent[] = [
    started(workerId, leases),
    newEvent('BaseModelLoaded', tenantId, {
      ...{ workerId, name, baseDigest, numericsId, architecture: 'llama', parameterCount: 1 },
      ...{ contextLength: 64, tokenizerSize: 56, tokenizerDigest, kernels: 'scalar', threads: 1 },
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
    const secondId = newId();
    const second = await aWorkerWith('other', 'b'.repeat(64), { workerId: secondId, tokenizer: 'c'.repeat(64) });
    await expect(bases.resolve(null)).rejects.toThrow('name the base by name or digest; loaded: ');
    expect(await bases.resolve('other')).toMatchObject({ baseDigest: 'b'.repeat(64) });
    await second.close();
    await until('the dead worker to be noticed', async () => (await bases.loaded()).length === 1);
    expect(await bases.resolve(null)).toMatchObject({ name: 'seedling' });
    await expect(bases.resolve('other')).rejects.toMatchObject({ fields: [{ path: 'base' }] });
    // Its text is still at hand for what it did; the folder here has another tokenizer.
    expect((await bases.textOf('a'.repeat(64))).name).toBe('seedling');
    await expect(bases.textOf('b'.repeat(64))).rejects.toMatchObject({
      code: 'tokenizer_not_available',
      message: expect.stringContaining(`has SHA-256 ${'c'.repeat(64)}`) as string,
    });

    // It comes back under another identity, its base still loaded.
    const again = await register(secondId);
    await db.store.append({
      writes: [{ streamId: streamId('worker', secondId), expected: 'exists', events: [started(secondId, again)] }],
    });
    expect(await bases.resolve('other')).toMatchObject({ baseDigest: 'b'.repeat(64) });
    await again.close();
    await first.close();
  });

  it('under two contracts are one base: f32-1 unless the other is named, whoever came last', async () => {
    const bases = new Bases(db.store, SEEDLING, workerLiveness(db.transactions));
    const digest = '7'.repeat(64);
    const wide = await aWorkerWith('two-ways', digest);
    const pairs = await aWorkerWith('two-ways', digest, { numericsId: 'bf16-1' });
    expect((await bases.loaded()).map(({ numericsId }) => numericsId)).toEqual(['f32-1', 'bf16-1']);
    for (const ref of [null, 'two-ways', digest]) {
      expect(await bases.resolve(ref)).toMatchObject({ baseDigest: digest, numericsId: 'f32-1' });
    }
    for (const ref of ['two-ways@bf16-1', `${digest}@bf16-1`]) {
      expect(await bases.resolve(ref)).toMatchObject({ baseDigest: digest, numericsId: 'bf16-1' });
    }
    await expect(bases.resolve('two-ways@f64-1')).rejects.toThrow('loaded: two-ways@f32-1');
    await wide.close();
    await until('the first worker to be noticed as dead', async () => (await bases.loaded()).length === 1);
    expect(await bases.resolve('two-ways')).toMatchObject({ numericsId: 'bf16-1' });
    await pairs.close();
  });

  it('have the text of a folder by its tokenizer, whatever its name', async () => {
    const bases = new Bases(db.store, SEEDLING);
    const namesake = await aWorkerWith('seedling', 'e'.repeat(64), { tokenizer: 'f'.repeat(64) });
    const copy = await aWorkerWith('copy-of-the-seedling', 'd'.repeat(64));
    await expect(bases.textOf('e'.repeat(64))).rejects.toMatchObject({ code: 'tokenizer_not_available' });
    expect((await bases.textOf('d'.repeat(64))).name).toBe('seedling');
    await expect(bases.textOf('9'.repeat(64))).rejects.toThrow('no worker has ever loaded base');
    await namesake.close();
    await copy.close();
  });
});
