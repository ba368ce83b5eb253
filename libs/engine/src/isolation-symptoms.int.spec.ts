/**
 * Symptoms that were reported of comparable systems, as tests that fail when ours has them. Each compares bytes: what
 * an adapter becomes beside others must be what it becomes alone.
 */
import { join, resolve } from 'node:path';
import { lossSchema, operationSchema, parseInput } from '#hotbed/contracts';
import type {
  AdamParams,
  AdapterHandle,
  AdapterSpec,
  Datum,
  Engine,
  Loss,
  PolicyHandle,
  SampleRequest,
  SampleResult,
  TargetModule,
} from './engine.types';
import { TARGET_MODULES } from './engine.types';
import { DEFAULT_ENGINE_OPTIONS, openEngine } from './open-engine';

const MODEL_FOLDER = join(resolve(__dirname, '..', '..', '..'), 'native', 'test', 'fixtures', 'llama-gqa-f32');
const VOCABULARY = 80;
const SEVEN = TARGET_MODULES.filter((name) => name !== 'lm_head');
const CROSS_ENTROPY: Loss = { name: 'cross_entropy', clipLow: null, clipHigh: null };
const IMPORTANCE: Loss = { name: 'importance_sampling', clipLow: null, clipHigh: null };
const ADAM: AdamParams = { learningRate: 0.01, beta1: 0.9, beta2: 0.95, eps: 1e-8, weightDecay: 0.01, gradClipNorm: 1 };

let engine: Engine;
beforeAll(async () => {
  engine = await openEngine({ ...DEFAULT_ENGINE_OPTIONS, modelFolder: MODEL_FOLDER, threads: 2, kvCacheMiB: 16 });
});
afterAll(() => engine.dispose());

const aSpec = (overrides: Partial<AdapterSpec> = {}): AdapterSpec => ({
  rank: 4,
  alpha: 8,
  rslora: false,
  targets: SEVEN,
  seed: '1',
  ...overrides,
});

/** Tokens that follow from two numbers: every test sees the same data everywhere. */
const tokens = (seed: number, count: number): Int32Array =>
  Int32Array.from(
    { length: count },
    (_, i) => 3 + ((seed * 7919 + i * 104_729 + ((seed * i) % 13)) % (VOCABULARY - 3)),
  );

const aDatum = (seed: number, length = 7): Datum => ({
  prompt: tokens(seed, 2 + (seed % 5)),
  branches: [
    {
      tokens: tokens(seed + 1, length),
      weights: Float32Array.from({ length }, (_, i) => 0.25 + ((seed + i) % 4) / 4),
      logprobs: null,
      advantages: null,
    },
  ],
});

const datums = (first: number, count: number): Datum[] => Array.from({ length: count }, (_, i) => aDatum(first + i));

/** One accumulation and one step. */
async function train(adapter: AdapterHandle, seed: number, adam: AdamParams = ADAM): Promise<void> {
  await engine.forwardBackward(adapter, CROSS_ENTROPY, datums(seed, 2));
  await engine.optimStep(adapter, adam);
}

/** The digest after `steps` steps with nothing else in the engine. */
async function trainedAlone(spec: AdapterSpec, steps: number, firstSeed: number): Promise<string> {
  const adapter = await engine.createAdapter(spec);
  for (let step = 0; step < steps; step++) await train(adapter, firstSeed + step);
  return digestAndDrop(adapter);
}

async function digestAndDrop(adapter: AdapterHandle): Promise<string> {
  const digest = await engine.stateDigest(adapter, '1');
  await engine.dropAdapter(adapter);
  return digest;
}

describe("SkyRL#2153, miles#1761: switching adapters keeps the previous one's Adam moments", () => {
  it('interleaved A and B equal A alone and B alone, bit for bit', async () => {
    const [specA, specB] = [aSpec({ seed: '11' }), aSpec({ seed: '12' })];
    const expected = [await trainedAlone(specA, 5, 100), await trainedAlone(specB, 5, 200)];
    const [a, b] = [await engine.createAdapter(specA), await engine.createAdapter(specB)];
    for (let step = 0; step < 5; step++) {
      await train(a, 100 + step);
      await train(b, 200 + step);
    }
    expect([await digestAndDrop(a), await digestAndDrop(b)]).toEqual(expected);
  });

  it('so do A and B whose calls are all in the engine at once', async () => {
    const [specA, specB] = [aSpec({ seed: '11' }), aSpec({ seed: '12' })];
    const expected = [await trainedAlone(specA, 5, 100), await trainedAlone(specB, 5, 200)];
    const [a, b] = [await engine.createAdapter(specA), await engine.createAdapter(specB)];
    const calls: Promise<unknown>[] = [];
    for (let step = 0; step < 5; step++) {
      for (const [adapter, first] of [
        [a, 100],
        [b, 200],
      ] as const) {
        calls.push(engine.forwardBackward(adapter, CROSS_ENTROPY, datums(first + step, 2)));
        calls.push(engine.optimStep(adapter, ADAM));
      }
    }
    await Promise.all(calls);
    expect([await digestAndDrop(a), await digestAndDrop(b)]).toEqual(expected);
  });

  it('an adapter made after another was dropped inherits nothing of it', async () => {
    const expected = await trainedAlone(aSpec(), 3, 300);
    for (let round = 0; round < 3; round++) {
      const before = await engine.createAdapter(aSpec({ seed: `${40 + round}` }));
      for (let step = 0; step < 4; step++) await train(before, 400 + step);
      await engine.dropAdapter(before);
      expect(await trainedAlone(aSpec(), 3, 300)).toBe(expected);
    }
  });
});

describe('SkyRL#2008: each call zeroes earlier gradients', () => {
  it('k calls equal one call with all their datums', async () => {
    const all = datums(500, 6);
    const whole = await engine.createAdapter(aSpec());
    await engine.forwardBackward(whole, CROSS_ENTROPY, all);
    const parts = await engine.createAdapter(aSpec());
    for (const datum of all) await engine.forwardBackward(parts, CROSS_ENTROPY, [datum]);
    expect(await engine.tensors(parts, 'gradient')).toEqual(await engine.tensors(whole, 'gradient'));
    expect(await digestAndDrop(parts)).toBe(await digestAndDrop(whole));
  });

  it('a step leaves no gradient behind', async () => {
    const adapter = await engine.createAdapter(aSpec());
    await train(adapter, 510);
    const gradient = await engine.tensors(adapter, 'gradient');
    for (const values of gradient.values()) expect(values.every((value) => Object.is(value, 0))).toBe(true);
    await engine.dropAdapter(adapter);
  });
});

describe('SkyRL#2146: windows of several micro-batches between steps lose gradients', () => {
  it('windows of 2, 1 and 3 calls equal one call each', async () => {
    const windows = [datums(600, 4), datums(610, 2), datums(620, 6)];
    const whole = await engine.createAdapter(aSpec());
    for (const window of windows) {
      await engine.forwardBackward(whole, CROSS_ENTROPY, window);
      await engine.optimStep(whole, ADAM);
    }
    const parts = await engine.createAdapter(aSpec());
    for (const window of windows) {
      for (let i = 0; i < window.length; i += 2) {
        await engine.forwardBackward(parts, CROSS_ENTROPY, window.slice(i, i + 2));
      }
      await engine.optimStep(parts, ADAM);
    }
    expect(await digestAndDrop(parts)).toBe(await digestAndDrop(whole));
  });
});

describe('SkyRL#405: all adapters must have one rank', () => {
  it('ranks 4, 8, 16 and 64 with different targets train together as they do alone', async () => {
    const specs = [
      aSpec({ rank: 4, targets: ['q', 'v'], seed: '21' }),
      aSpec({ rank: 8, targets: SEVEN, seed: '22', rslora: true }),
      aSpec({ rank: 16, targets: ['k', 'down'], seed: '23' }),
      aSpec({ rank: 64, targets: ['o', 'gate', 'up'], alpha: 1, seed: '24' }),
    ];
    const expected: string[] = [];
    for (const [i, spec] of specs.entries()) expected.push(await trainedAlone(spec, 4, 700 + 10 * i));
    const adapters = await Promise.all(specs.map((spec) => engine.createAdapter(spec)));
    for (let step = 0; step < 4; step++) {
      await Promise.all(adapters.map((adapter, i) => train(adapter, 700 + 10 * i + step)));
    }
    expect(await Promise.all(adapters.map(digestAndDrop))).toEqual(expected);
  });
});

describe('SkyRL#1632: seed and target flags are ignored', () => {
  const initial = async (spec: AdapterSpec): Promise<string> => digestAndDrop(await engine.createAdapter(spec));

  it('the same seed gives the same bytes, another seed other bytes', async () => {
    expect(await initial(aSpec({ seed: '5' }))).toBe(await initial(aSpec({ seed: '5' })));
    expect(await initial(aSpec({ seed: '5' }))).not.toBe(await initial(aSpec({ seed: '6' })));
  });

  it('a module that is no target has no tensors and does not change the others', async () => {
    const names = async (targets: TargetModule[]): Promise<Map<string, Float32Array>> => {
      const adapter = await engine.createAdapter(aSpec({ targets }));
      const tensors = await engine.tensors(adapter, 'weight');
      await engine.dropAdapter(adapter);
      return tensors;
    };
    const some = await names(['q', 'down']);
    expect([...some.keys()].every((name) => /q_proj|down_proj/.test(name))).toBe(true);
    expect(some.size).toBe(2 * 2 * engine.info().layers);
    const all = await names([...SEVEN]);
    for (const [name, values] of some) expect(all.get(name)).toEqual(values);
  });
});

describe('SkyRL#1646, #516: optimizer settings are ignored, unknown fields dropped', () => {
  /** AdamW as torch defines it, in fp64, from one gradient and zero moments. */
  function stepped(theta: number, gradients: readonly number[], adam: AdamParams, norm: number): number {
    let [m, v] = [0, 0];
    let value = theta;
    gradients.forEach((gradient, i) => {
      const clip = adam.gradClipNorm > 0 ? Math.min(1, adam.gradClipNorm / (norm + 1e-6)) : 1;
      const g = gradient * clip;
      value *= 1 - adam.learningRate * adam.weightDecay;
      m = adam.beta1 * m + (1 - adam.beta1) * g;
      v = adam.beta2 * v + (1 - adam.beta2) * g * g;
      const bias1 = 1 - adam.beta1 ** (i + 1);
      const bias2 = 1 - adam.beta2 ** (i + 1);
      value -= ((adam.learningRate / bias1) * m) / (Math.sqrt(v) / Math.sqrt(bias2) + adam.eps);
    });
    return value;
  }

  const changes: [string, Partial<AdamParams>][] = [
    ['nothing', {}],
    ['beta1', { beta1: 0.5 }],
    ['beta2', { beta2: 0.5 }],
    ['eps', { eps: 0.1 }],
    ['weightDecay', { weightDecay: 5 }],
    ['gradClipNorm', { gradClipNorm: 0 }],
    ['learningRate', { learningRate: 0.003 }],
  ];
  const moved = new Map<string, string>();

  it.each(changes)('a change of %s moves the weights as torch would', async (name, change) => {
    const adam = { ...ADAM, gradClipNorm: 0.05, ...change };
    const adapter = await engine.createAdapter(aSpec());
    // Two steps on one gradient tell betas apart, which cancel in the first.
    const before = await engine.tensors(adapter, 'weight');
    await engine.forwardBackward(adapter, CROSS_ENTROPY, datums(800, 3));
    const gradient = await engine.tensors(adapter, 'gradient');
    const { gradNorm } = await engine.optimStep(adapter, adam);
    const after = await engine.tensors(adapter, 'weight');
    for (const [tensor, values] of before) {
      values.forEach((theta, i) => {
        const expected = stepped(theta, [gradient.get(tensor)![i]!], adam, gradNorm);
        expect(Math.abs(after.get(tensor)![i]! - expected)).toBeLessThanOrEqual(1e-6 + 1e-5 * Math.abs(expected));
      });
    }
    await engine.forwardBackward(adapter, CROSS_ENTROPY, datums(810, 3));
    await engine.optimStep(adapter, adam);
    const digest = await digestAndDrop(adapter);
    for (const [other, itsDigest] of moved) expect([other, itsDigest]).not.toEqual([other, digest]);
    moved.set(name, digest);
  });

  it('an unknown field is refused by name before it can become part of an operation', () => {
    const operation = { kind: 'optim_step', adam: { ...ADAM, momentum: 0.9 } };
    expect(() => parseInput(operationSchema, operation, 'operation')).toThrow(/operation\.adam: .*momentum/);
    const loss = { name: 'importance_sampling', klCoefficient: 0.1 };
    expect(() => parseInput(lossSchema, loss, 'loss')).toThrow(/loss: .*klCoefficient/);
  });
});

describe('SkyRL#2041: the loss is valid and every gradient zero', () => {
  it.each([
    ['cross_entropy', CROSS_ENTROPY],
    ['importance_sampling', IMPORTANCE],
  ] as const)('the first %s step has a gradient and changes bytes', async (_, loss) => {
    const adapter = await engine.createAdapter(aSpec());
    const before = await engine.stateDigest(adapter, '0');
    const data = datums(900, 2).map((datum) => ({
      ...datum,
      branches: datum.branches.map((branch) =>
        loss === CROSS_ENTROPY
          ? branch
          : {
              ...branch,
              weights: null,
              logprobs: new Float32Array(branch.tokens.length).fill(-4),
              advantages: new Float32Array(branch.tokens.length).fill(0.5),
            },
      ),
    }));
    const { lossSum } = await engine.forwardBackward(adapter, loss, data);
    expect(lossSum).not.toBe(0);
    const { gradNorm } = await engine.optimStep(adapter, ADAM);
    expect(gradNorm).toBeGreaterThan(0);
    expect(await engine.stateDigest(adapter, '0')).not.toBe(before);
    await engine.dropAdapter(adapter);
  });
});

describe('open-rl#80: a step of A after a forward-backward of B updates B', () => {
  it('B keeps its bytes, gradient included, and A moves', async () => {
    const [a, b] = [
      await engine.createAdapter(aSpec({ seed: '31' })),
      await engine.createAdapter(aSpec({ seed: '32' })),
    ];
    await engine.forwardBackward(a, CROSS_ENTROPY, datums(950, 2));
    await engine.forwardBackward(b, CROSS_ENTROPY, datums(960, 2));
    const [beforeA, beforeB] = [await engine.stateDigest(a, '1'), await engine.stateDigest(b, '1')];
    await engine.optimStep(a, ADAM);
    expect(await engine.stateDigest(b, '1')).toBe(beforeB);
    expect(await engine.stateDigest(a, '1')).not.toBe(beforeA);
    await Promise.all([engine.dropAdapter(a), engine.dropAdapter(b)]);
  });
});

describe('flash-attention#2244: the "deterministic" backward is not', () => {
  it('100 repeats on one thread and on three, alone and beside another adapter, give one gradient', async () => {
    const data = datums(970, 3);
    const threaded = await openEngine({
      ...DEFAULT_ENGINE_OPTIONS,
      modelFolder: MODEL_FOLDER,
      threads: 3,
      kvCacheMiB: 16,
    });
    try {
      const digests = new Set<string>();
      for (let repeat = 0; repeat < 100; repeat++) {
        const host = repeat % 2 === 0 ? engine : threaded;
        const adapter = await host.createAdapter(aSpec({ seed: '41' }));
        const neighbour = repeat % 4 < 2 ? null : await host.createAdapter(aSpec({ seed: '42', rank: 8 }));
        await Promise.all([
          host.forwardBackward(adapter, CROSS_ENTROPY, data),
          ...(neighbour === null ? [] : [host.forwardBackward(neighbour, CROSS_ENTROPY, datums(980, 4))]),
        ]);
        digests.add(await host.stateDigest(adapter, '1'));
        await host.dropAdapter(adapter);
        if (neighbour !== null) await host.dropAdapter(neighbour);
      }
      expect(digests.size).toBe(1);
    } finally {
      await threaded.dispose();
    }
  }, 60_000);
});

describe('SkyRL#1870, AReaL#421: sampler and trainer disagree, or train on stale weights unnoticed', () => {
  const request = (policy: PolicyHandle | null, seed: number): SampleRequest => ({
    policy,
    prompt: tokens(seed, 5),
    seeds: Array.from({ length: 4 }, (_, i) => `${seed * 100 + i}`),
    params: { temperature: 1, topK: 0, topP: 1, maxTokens: 40, stopTokenIds: [] },
    promptLogprobs: false,
  });
  const asDatum = (prompt: Int32Array, { sequences }: SampleResult): Datum => ({
    prompt,
    branches: sequences.map(({ tokens, policyLogprobs }) => ({
      tokens,
      weights: null,
      logprobs: policyLogprobs,
      advantages: new Float32Array(tokens.length).fill(1),
    })),
  });
  /** Greatest difference between what the sampler recorded and what the trainer computes. */
  async function difference(adapter: AdapterHandle | null, datum: Datum): Promise<number> {
    const { logprobs } = await engine.forward(adapter, IMPORTANCE, [datum]);
    return Math.max(
      ...datum.branches.flatMap(({ logprobs: recorded }, b) =>
        Array.from(recorded!, (value, i) => Math.abs(value - logprobs[0]![b]![i]!)),
      ),
    );
  }

  it('the difference is exactly 0 at the policy that sampled, in every state of the adapter', async () => {
    const adapter = await engine.createAdapter(aSpec({ seed: '51' }));
    for (let step = 0; step < 4; step++) {
      const policy = await engine.pin(adapter);
      const { prompt, ...rest } = request(policy, 60 + step);
      const datum = asDatum(prompt, await engine.sample({ prompt, ...rest }));
      expect(await difference(adapter, datum)).toBe(0);
      engine.release(policy);
      await train(adapter, 990 + step);
    }
    const { prompt, ...rest } = request(null, 70);
    expect(await difference(null, asDatum(prompt, await engine.sample({ prompt, ...rest })))).toBe(0);
    await engine.dropAdapter(adapter);
  });

  it('a rollout of an older state shows as such: its log-probs are those of its own policy alone', async () => {
    const adapter = await engine.createAdapter(aSpec({ seed: '52' }));
    await train(adapter, 1000);
    const policy = await engine.pin(adapter);
    const { prompt, ...rest } = request(policy, 80);
    const stale = asDatum(prompt, await engine.sample({ prompt, ...rest }));
    await train(adapter, 1001);
    expect(await difference(adapter, stale)).toBeGreaterThan(1e-4);
    // The pinned policy still samples what it sampled.
    expect(asDatum(prompt, await engine.sample({ prompt, ...rest }))).toEqual(stale);
    await engine.dropAdapter(adapter);
  });
});
