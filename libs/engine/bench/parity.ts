import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { AdapterHandle, Datum, Engine, EngineOptions, KernelPath, NumericsId } from '../src/engine.types';
import { DEFAULT_ENGINE_OPTIONS, openEngine } from '../src/open-engine';
import { NUMERICS_LIST_OPTION, allOffered, numericsListOf } from './numerics';
import { type PathCounts, countPath, offeredPaths } from './offered-paths';
import { type BenchCommand, COMMON_OPTIONS, type GivenOptions, MODEL_OPTIONS, readOptions } from './options';
import { rounded } from './interleave';
import { Random } from './random';
import { CONTEXT_LENGTH, randomShape, shapeFor, writeRandomModel } from './random-model';
import { QUICK_SHAPE, SMOLLM2_135M, type SpeedModel, speedModel } from './speed-model';
import { ADAM, CROSS_ENTROPY, adapterSpec, createAdapters, randomTokens, sampleRequest, sequence } from './workload';

export const PARITY_BENCH: BenchCommand = {
  name: 'bench:parity',
  what: 'The log-prob that the sampler records of every drawn token against the one that the trainer recomputes, bit by bit.',
  options: {
    ...COMMON_OPTIONS,
    ...MODEL_OPTIONS,
    ...NUMERICS_LIST_OPTION,
    tokens: {
      type: 'string',
      default: '1000000',
      help: 'of random tiny bases, every numerics id and kernel path in turn',
    },
    'large-tokens': { type: 'string', default: '10000', help: "of the large base: --model, or SmolLM2-135M's shapes" },
  },
};

export const parityOptions = (args: string[]): GivenOptions => readOptions(PARITY_BENCH.options, args);

export interface ParityTally {
  tokens: number;
  /** Tokens whose two log-probs differ in any bit. */
  differing: number;
  maxDifference: number;
  bases: number;
}

export interface ParityReport {
  tiny: ParityTally;
  large: ParityTally;
  /** Of the tiny bases: tokens by numerics id and kernel path. */
  paths: PathCounts;
  model: string;
  seconds: number;
  leftOut: string[];
}

export async function benchParity(options: GivenOptions): Promise<ParityReport> {
  const started = Date.now();
  const quick = options.has('quick');
  const seed = options.whole('seed', 0);
  const until = started + 1000 * options.whole('budget-s', 1);
  const paths: ParityReport['paths'] = {};
  const leftOut: string[] = [];
  const wanted = { tiny: options.whole('tokens', 1), large: options.whole('large-tokens', 1) };
  const ids = await numericsListOf(options);
  const cases = (await offeredPaths()).flatMap((kernels) => ids.map((numerics) => ({ numerics, kernels })));

  const tiny = emptyTally();
  for (let base = 0; tiny.tokens < wanted.tiny && Date.now() < until; base++) {
    const of = cases[base % cases.length];
    if (of === undefined) break;
    const before = tiny.tokens;
    await onRandomBase(new Random(seed + base), of, tiny);
    countPath(paths, of.numerics, of.kernels, tiny.tokens - before);
  }
  if (tiny.tokens < wanted.tiny) leftOut.push(`tiny bases: ${tiny.tokens} of ${wanted.tiny} tokens`);

  const large = emptyTally();
  const model = speedModel(options.text('model'), quick ? QUICK_SHAPE : SMOLLM2_135M, seed);
  try {
    for (const [index, numerics] of ids.entries()) {
      const upTo = (wanted.large * (index + 1)) / ids.length;
      await onLargeBase({ model, numerics, seed, upTo, until }, large);
    }
  } finally {
    model.dispose();
  }
  if (large.tokens < wanted.large) leftOut.push(`large base: ${large.tokens} of ${wanted.large} tokens`);
  return { tiny, large, paths, model: model.name, seconds: rounded((Date.now() - started) / 1000), leftOut };
}

async function onLargeBase(
  of: { model: SpeedModel; numerics: NumericsId; seed: number; upTo: number; until: number },
  tally: ParityTally,
): Promise<void> {
  const { model, numerics } = of;
  // A named path runs either id on any machine; without a name only what is offered.
  const engine = await openEngine({
    ...DEFAULT_ENGINE_OPTIONS,
    modelFolder: model.folder,
    numerics,
    kernels: (await allOffered()).includes(numerics) ? null : ((await offeredPaths()).at(-1) ?? null),
    kvCacheMiB: 1024,
  });
  try {
    tally.bases++;
    const random = new Random(of.seed);
    const sizes = { adapters: 4, requests: 2, sequences: 8, tokens: 64, prompt: 100 };
    while (tally.tokens < of.upTo && Date.now() < of.until) {
      await compare(engine, random, model.shape.vocabulary, sizes, tally);
    }
  } finally {
    await engine.dispose();
  }
}

export const isExact = ({ tiny, large }: ParityReport): boolean =>
  tiny.differing + large.differing === 0 && tiny.tokens > 0 && large.tokens > 0;

const emptyTally = (): ParityTally => ({ tokens: 0, differing: 0, maxDifference: 0, bases: 0 });

async function onRandomBase(
  random: Random,
  of: { numerics: NumericsId; kernels: KernelPath },
  tally: ParityTally,
): Promise<void> {
  const folder = mkdtempSync(join(tmpdir(), 'hotbed-parity-'));
  try {
    const shape = shapeFor(of.numerics, randomShape(random));
    writeRandomModel(folder, shape, random);
    const options: EngineOptions = {
      ...DEFAULT_ENGINE_OPTIONS,
      modelFolder: folder,
      ...of,
      maxStepRows: random.pick([48, 96, 256]),
      maxTrainRows: random.pick([64, 512, 2048]),
      activationBudgetMiB: random.pick([1, 64]),
    };
    const engine = await openEngine(options);
    try {
      tally.bases++;
      const prompt = random.integer(1, 80);
      const tokens = random.integer(8, CONTEXT_LENGTH - prompt);
      const sizes = { adapters: random.integer(1, 4), requests: 3, sequences: random.integer(2, 12), tokens, prompt };
      await compare(engine, random, shape.vocabulary, sizes, tally);
    } finally {
      await engine.dispose();
    }
  } finally {
    rmSync(folder, { recursive: true });
  }
}

interface Sizes {
  adapters: number;
  requests: number;
  sequences: number;
  tokens: number;
  prompt: number;
}

/** Adapters that have learned something sample at once; each then trains on what it drew, as groups and one by one. */
async function compare(
  engine: Engine,
  random: Random,
  vocabulary: number,
  sizes: Sizes,
  tally: ParityTally,
): Promise<void> {
  const adapters = await createAdapters(engine, sizes.adapters, random.pick([1, 4, 8]));
  const alone = await engine.createAdapter(adapterSpec(2, random.integer(1, 1000)));
  await Promise.all([...adapters, alone].map((adapter) => learn(engine, adapter, random, vocabulary)));
  await Promise.all(
    [...adapters, alone].map((adapter) => drawAndRecompute(engine, adapter, random, vocabulary, sizes, tally)),
  );
  await Promise.all([...adapters, alone].map((adapter) => engine.dropAdapter(adapter)));
}

/** Two steps at a high rate, so that B is far from zero. */
async function learn(engine: Engine, adapter: AdapterHandle, random: Random, vocabulary: number): Promise<void> {
  for (let step = 0; step < 2; step++) {
    await engine.forwardBackward(adapter, CROSS_ENTROPY, [sequence(random, 8, vocabulary)]);
    await engine.optimStep(adapter, { ...ADAM, learningRate: 1e-2 });
  }
}

async function drawAndRecompute(
  engine: Engine,
  adapter: AdapterHandle,
  random: Random,
  vocabulary: number,
  sizes: Sizes,
  tally: ParityTally,
): Promise<void> {
  const policy = await engine.pin(adapter);
  const requests = random.list(sizes.requests, () => {
    const seeds = random.list(sizes.sequences, () => random.seed());
    const request = sampleRequest(policy, randomTokens(random, sizes.prompt, vocabulary), seeds, sizes.tokens, [2]);
    const { params } = request;
    return { ...request, params: { ...params, temperature: random.pick([0.7, 1, 1.3]), topK: random.pick([0, 0, 8]) } };
  });
  const drawn = await Promise.all(requests.map((request) => engine.sample(request)));
  engine.release(policy);
  const recorded: Float32Array[][] = [];
  const datums: Datum[] = [];
  for (const [index, { sequences }] of drawn.entries()) {
    const prompt = requests[index]?.prompt ?? Int32Array.of(0);
    const branches = sequences.map(({ tokens }) => ({
      tokens,
      weights: new Float32Array(tokens.length).fill(1),
      logprobs: null,
      advantages: null,
    }));
    const logprobs = sequences.map(({ policyLogprobs }) => policyLogprobs);
    if (random.chance(0.5)) {
      datums.push({ prompt, branches });
      recorded.push(logprobs);
    } else {
      datums.push(...branches.map((branch) => ({ prompt, branches: [branch] })));
      recorded.push(...logprobs.map((each) => [each]));
    }
  }
  const { logprobs } = random.chance(0.5)
    ? await engine.forward(adapter, CROSS_ENTROPY, datums)
    : await engine.forwardBackward(adapter, CROSS_ENTROPY, datums);
  for (const [i, branches] of recorded.entries()) {
    for (const [j, sampled] of branches.entries()) count(sampled, logprobs[i]?.[j] ?? new Float32Array(), tally);
  }
}

function count(sampled: Float32Array, recomputed: Float32Array, tally: ParityTally): void {
  const bits = (values: Float32Array) => new Uint32Array(values.buffer, values.byteOffset, values.length);
  const [a, b] = [bits(sampled), bits(recomputed)];
  tally.tokens += sampled.length;
  for (let i = 0; i < a.length; i++) {
    if (a[i] === b[i]) continue;
    tally.differing++;
    const difference = Math.abs((sampled[i] ?? NaN) - (recomputed[i] ?? NaN));
    tally.maxDifference = Number.isNaN(difference) ? Infinity : Math.max(tally.maxDifference, difference);
  }
}
