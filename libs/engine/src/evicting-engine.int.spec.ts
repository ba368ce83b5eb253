/**
 * Adapters that leave memory for snapshots: nobody can tell but by the clock. A budget of one byte sends every idle
 * adapter out after each call.
 */
import { existsSync, mkdtempSync, readdirSync, renameSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import fc from 'fast-check';
import { EngineFault } from './engine.errors';
import type { AdamParams, AdapterHandle, AdapterSpec, Datum, Engine, Loss, PolicyHandle } from './engine.types';
import { EvictingEngine } from './evicting-engine';
import { DEFAULT_ENGINE_OPTIONS, openEngine } from './open-engine';

const MODEL_FOLDER = join(resolve(__dirname, '..', '..', '..'), 'native', 'test', 'fixtures', 'llama-gqa-f32');
const LOSS: Loss = { name: 'cross_entropy', clipLow: null, clipHigh: null };
const ADAM: AdamParams = { learningRate: 0.01, beta1: 0.9, beta2: 0.95, eps: 1e-8, weightDecay: 0.01, gradClipNorm: 1 };
const spec = (seed: number): AdapterSpec => ({
  rank: 2 + seed,
  alpha: 8,
  rslora: false,
  targets: ['q', 'v', 'down'],
  seed: `${seed}`,
});
const aDatum = (seed: number): Datum => ({
  prompt: Int32Array.of(1, 5 + (seed % 7)),
  branches: [
    {
      tokens: Int32Array.of(7, 3 + (seed % 11)),
      weights: Float32Array.of(1, 0.5),
      logprobs: null,
      advantages: null,
    },
  ],
});

let plain: Engine;
let parent: string;
const engines: EvictingEngine[] = [];

beforeAll(async () => {
  plain = await open();
  parent = mkdtempSync(join(tmpdir(), 'hotbed-evicting-'));
});
afterAll(async () => {
  await Promise.all([plain.dispose(), ...engines.map((engine) => engine.dispose())]);
  rmSync(parent, { recursive: true });
});

const open = (): Promise<Engine> =>
  openEngine({ ...DEFAULT_ENGINE_OPTIONS, modelFolder: MODEL_FOLDER, threads: 1, kvCacheMiB: 8 });

async function evicting(adapterMemoryBytes: number): Promise<EvictingEngine> {
  const engine = await EvictingEngine.over(await open(), { adapterMemoryBytes, folder: parent });
  engines.push(engine);
  return engine;
}

type Op = { adapter: number; kind: 'train' | 'step' | 'digest' | 'sample' | 'evict' };

/** Makes all calls without waiting in between, or one after another. @returns everything that came back */
async function run(engine: Engine, ops: readonly Op[], together: boolean): Promise<unknown[]> {
  const adapters = await Promise.all([0, 1, 2].map((seed) => engine.createAdapter(spec(seed))));
  const calls: Promise<unknown>[] = [];
  for (const [i, { adapter, kind }] of ops.entries()) {
    const call = apply(engine, adapters[adapter] as AdapterHandle, kind, i);
    calls.push(call);
    if (together) continue;
    await call;
    if (engine instanceof EvictingEngine) await engine.evict(adapters[adapter] as AdapterHandle);
  }
  const results = await Promise.all(calls);
  for (const adapter of adapters) {
    results.push(await engine.stateDigest(adapter, '1'));
    await engine.dropAdapter(adapter);
  }
  return results;
}

async function apply(engine: Engine, adapter: AdapterHandle, kind: Op['kind'], seed: number): Promise<unknown> {
  switch (kind) {
    case 'train':
      return engine.forwardBackward(adapter, LOSS, [aDatum(seed)]);
    case 'step':
      return engine.optimStep(adapter, ADAM);
    case 'digest':
      return engine.stateDigest(adapter, `${seed}`);
    case 'sample': {
      const policy = await engine.pin(adapter);
      const result = await sample(engine, policy);
      engine.release(policy);
      return result;
    }
    case 'evict':
      if (engine instanceof EvictingEngine) await engine.evict(adapter);
      return null;
  }
}

const sample = (engine: Engine, policy: PolicyHandle) =>
  engine.sample({
    policy,
    prompt: Int32Array.of(1, 5, 6),
    seeds: ['3'],
    params: { temperature: 1, topK: 0, topP: 1, maxTokens: 4, stopTokenIds: [] },
    promptLogprobs: false,
  });

describe('an engine whose adapters leave memory', () => {
  it('gives what one gives whose adapters stay, whatever the order of calls', async () => {
    const engine = await evicting(1);
    const op = fc.record({
      adapter: fc.nat(2),
      kind: fc.constantFrom<Op['kind']>('train', 'step', 'digest', 'sample', 'evict'),
    });
    await fc.assert(
      fc.asyncProperty(fc.array(op, { maxLength: 14 }), fc.boolean(), async (ops, together) => {
        expect(await run(engine, ops, together)).toEqual(await run(plain, ops, together));
      }),
      { numRuns: 40, seed: 4 },
    );
    const { evictions, restores, faults } = engine.evictionStats();
    expect(evictions).toBeGreaterThan(50);
    expect(restores).toBeGreaterThan(50);
    expect(faults).toBe(0);
  });

  it('frees the memory, keeps the bytes, and leaves no file behind', async () => {
    const engine = await evicting(1 << 30);
    const adapter = await engine.createAdapter(spec(1));
    await engine.forwardBackward(adapter, LOSS, [aDatum(1)]);
    const before = await engine.stateDigest(adapter, '1');
    const own = (): string[] => readdirSync(parent).flatMap((folder) => readdirSync(join(parent, folder)));
    expect(await engine.evict(adapter)).toBe(true);
    expect(engine.stats().adapters).toBe(0);
    expect(await engine.adapterMemory(adapter)).toMatchObject({ stateBytes: 0 });
    expect(engine.specOf(adapter)).toMatchObject({ rank: 3 });
    expect(own().length).toBeGreaterThan(0);
    expect(await engine.stateDigest(adapter, '1')).toBe(before);
    expect((await engine.adapterMemory(adapter)).stateBytes).toBeGreaterThan(0);
    expect(await engine.evict(adapter)).toBe(true);
    await engine.dropAdapter(adapter);
    await expect(engine.stateDigest(adapter, '1')).rejects.toThrow(/unknown or dropped/);
    expect(own().filter((name) => name.startsWith(`${adapter}-`))).toEqual([]);
  });

  it('lets those go that were idle for longest, and no more than it must', async () => {
    const one = await evicting(1 << 30);
    const { stateBytes } = await one.adapterMemory(await one.createAdapter(spec(0)));
    const engine = await evicting(2 * stateBytes);
    const [a, b, c] = await Promise.all([0, 0, 0].map(() => engine.createAdapter(spec(0))));
    await settled(() => engine.evictionStats().evictions === 1);
    await engine.stateDigest(a!, '1'); // back, and b is now idle for longest
    await settled(() => engine.evictionStats().evictions === 2);
    const inMemory = await Promise.all([a!, b!, c!].map(async (x) => (await engine.adapterMemory(x)).stateBytes > 0));
    expect(inMemory).toEqual([true, false, true]);
  });

  it('keeps an adapter whose snapshot cannot be written, and says why', async () => {
    const engine = await evicting(1 << 30);
    const adapter = await engine.createAdapter(spec(2));
    const before = await engine.stateDigest(adapter, '1');
    const folder = newestFolder();
    renameSync(folder, `${folder}-away`);
    const fault: unknown = await engine.evict(adapter).catch((error: unknown) => error);
    expect(fault).toBeInstanceOf(EngineFault);
    expect(fault).toMatchObject({ code: 'io', retryable: true });
    expect(engine.stats().adapters).toBe(1);
    expect(await engine.stateDigest(adapter, '1')).toBe(before);
    renameSync(`${folder}-away`, folder);
    expect(await engine.evict(adapter)).toBe(true);
    expect(engine.evictionStats()).toMatchObject({ faults: 1, evictions: 1, cold: 1 });
  });

  it('rejects the calls of an adapter whose snapshot cannot be read, and tries again at the next', async () => {
    const engine = await evicting(1 << 30);
    const adapter = await engine.createAdapter(spec(2));
    const before = await engine.stateDigest(adapter, '1');
    await engine.evict(adapter);
    const folder = newestFolder();
    renameSync(folder, `${folder}-away`);
    const calls = [engine.stateDigest(adapter, '1'), engine.optimStep(adapter, ADAM)];
    for (const outcome of await Promise.allSettled(calls)) {
      expect(outcome).toMatchObject({ status: 'rejected', reason: { kind: 'EngineFault' } });
    }
    renameSync(`${folder}-away`, folder);
    expect(await engine.stateDigest(adapter, '1')).toBe(before);
  });

  it('removes its folder when it is disposed of', async () => {
    const engine = await evicting(1);
    await engine.createAdapter(spec(1));
    const folder = newestFolder();
    await engine.dispose();
    expect(existsSync(folder)).toBe(false);
  });
});

/** The folder of the engine made last. */
function newestFolder(): string {
  const engine = engines.at(-1) as unknown as { folder: string };
  return engine.folder;
}

async function settled(holds: () => boolean): Promise<void> {
  const deadline = Date.now() + 10_000;
  while (!holds() && Date.now() < deadline) await new Promise((resolve) => setImmediate(resolve));
  expect(holds()).toBe(true);
}
