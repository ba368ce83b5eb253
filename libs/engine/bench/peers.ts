import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as pause } from 'node:timers/promises';
import type { Datum, Engine, NumericsId } from '../src/engine.types';
import { DEFAULT_ENGINE_OPTIONS, openEngine } from '../src/open-engine';
import { Budget } from './budget';
import { type Peer, startLlamaCpp, startTorchPeft } from './fetch-peers';
import { writeGguf } from './gguf';
import { type BenchCase, LEAST_ROUNDS, interleave, median, rounded, secondsOf } from './interleave';
import { NUMERICS_OPTION, numericsOf } from './numerics';
import { type BenchCommand, COMMON_OPTIONS, type GivenOptions, MODEL_OPTIONS, readOptions } from './options';
import { Random } from './random';
import { QUICK_SHAPE, SMOLLM2_135M, type SpeedModel, speedModel } from './speed-model';
import { ADAM, CROSS_ENTROPY, IMPORTANCE_SAMPLING, adapterSpec, randomTokens, ungrouped } from './workload';

export const PEERS_BENCH: BenchCommand = {
  name: 'bench:peers',
  what: 'The same work by this engine, by torch + PEFT (training) and by llama.cpp (decoding), alternating in one run.',
  options: {
    ...COMMON_OPTIONS,
    ...MODEL_OPTIONS,
    ...NUMERICS_OPTION,
    rounds: {
      type: 'string',
      default: String(LEAST_ROUNDS),
      help: 'measured rounds of each case, after one that warms up',
    },
    python: {
      type: 'string',
      default: 'python3',
      help: 'an interpreter that has torch, transformers and peft, or one to make a virtual environment with',
    },
    peers: { type: 'string', default: 'torch-peft,llama-cpp', help: 'which of them' },
  },
};

export const peerOptions = (args: string[]): GivenOptions => readOptions(PEERS_BENCH.options, args);

/** Tokens/s, medians; null where the peer could not be had. The ratio is ours over the peer's best. */
export interface TrainingComparison {
  tokensPerS: number;
  float32TokensPerS: number | null;
  bfloat16TokensPerS: number | null;
  ratio: number | null;
}

export interface DecodeComparison {
  rows: number;
  tokensPerS: number;
  /** llama.cpp without and with flash attention. */
  plainTokensPerS: number | null;
  flashTokensPerS: number | null;
  ratio: number | null;
}

export interface PeersReport {
  /** 8 sequences of 256 tokens (--quick: fewer), rank 8, seven modules, AdamW step included on both sides. */
  training: TrainingComparison | null;
  /** Prompt of 192 and eight completions of 64; ours as one group. Optimizer step included. */
  grpo: TrainingComparison | null;
  decode: DecodeComparison[];
  /** Versions measured; null where the peer could not be had. */
  peers: { torchPeft: string | null; llamaCpp: string | null };
  model: string;
  /** Ours. */
  numerics: NumericsId;
  kernels: string;
  threads: number;
  seconds: number;
  leftOut: string[];
}

interface Sizes {
  sequences: number;
  tokens: number;
  completion: number;
  decodeRows: number[];
  decodeTokens: number;
}
const FULL: Sizes = { sequences: 8, tokens: 256, completion: 64, decodeRows: [1, 32], decodeTokens: 32 };
const QUICK: Sizes = { sequences: 4, tokens: 32, completion: 8, decodeRows: [1, 4], decodeTokens: 8 };
const RANK = 8;
/** Threads of a peer's runtime spin for a while after their work; whoever is next must not pay for it. */
const SETTLE_MS = 250;

export async function benchPeers(options: GivenOptions): Promise<PeersReport> {
  const quick = options.has('quick');
  const sizes = quick ? QUICK : FULL;
  const seed = options.whole('seed', 0);
  const numerics = numericsOf(options);
  const rounds = options.whole('rounds', 1);
  const wanted = peersOf(options.text('peers') ?? '');
  const budget = new Budget(options.whole('budget-s', 1), { fetch: 25, training: 55, decode: 20 });
  const model = speedModel(options.text('model'), quick ? QUICK_SHAPE : SMOLLM2_135M, seed);
  const folder = mkdtempSync(join(tmpdir(), 'hotbed-peers-'));
  const leftOut: string[] = [];
  const started: Peer[] = [];
  const engine = await openEngine({
    ...DEFAULT_ENGINE_OPTIONS,
    modelFolder: model.folder,
    numerics,
    kvCacheMiB: 512,
    activationBudgetMiB: 4096,
  });
  /** A peer that cannot be had is named and skipped; ours is measured all the same. */
  const have = async (name: PeerName, start: () => Promise<Peer>): Promise<Peer | null> => {
    if (!wanted.includes(name)) {
      leftOut.push(`${name}: not asked for`);
      return null;
    }
    try {
      const peer = await start();
      started.push(peer);
      return peer;
    } catch (error) {
      leftOut.push(`${name}: ${error instanceof Error ? error.message : String(error)}`);
      return null;
    }
  };
  try {
    const { kernels, threads } = engine.info();
    const python = options.text('python') ?? 'python3';
    budget.deadlineOf('fetch');
    const torch = await have('torch-peft', () =>
      startTorchPeft(python, folder, { modelFolder: model.folder, threads, rank: RANK }),
    );
    const training = { engine, model, sizes, seed, rounds, torch, leftOut, until: budget.deadlineOf('training') };
    const { plain, grpo } = await compareTraining(training);
    await torch?.process.stop(); // its memory and threads are no part of what follows
    const llamaCpp = await have('llama-cpp', () => {
      const gguf = join(folder, 'model.gguf');
      writeGguf(model.folder, model.shape, model.contextLength, gguf);
      const rows = Math.max(...sizes.decodeRows);
      return startLlamaCpp(folder, { gguf, threads, rows, tokens: sizes.decodeTokens });
    });
    const decode = await compareDecode({
      engine,
      sizes,
      rounds,
      llamaCpp,
      leftOut,
      until: budget.deadlineOf('decode'),
    });
    return {
      training: plain,
      grpo,
      decode,
      peers: { torchPeft: torch?.versions ?? null, llamaCpp: llamaCpp?.versions ?? null },
      model: model.name,
      numerics,
      kernels,
      threads,
      seconds: rounded(budget.secondsUsed()),
      leftOut,
    };
  } finally {
    await Promise.all([...started.map((peer) => peer.process.stop()), engine.dispose()]);
    rmSync(folder, { recursive: true, force: true });
    model.dispose();
  }
}

const PEERS = ['torch-peft', 'llama-cpp'] as const;
type PeerName = (typeof PEERS)[number];

function peersOf(text: string): PeerName[] {
  return text.split(',').map((name) => {
    const peer = PEERS.find((each) => each === name);
    if (peer === undefined) throw new Error(`--peers: expected some of ${PEERS.join(',')}; got "${name}"`);
    return peer;
  });
}

/** A case that gives its own seconds, after everybody's threads have gone to sleep. */
const settled = (name: string, run: () => Promise<number>): BenchCase<number> => ({
  name,
  run: async () => {
    await pause(SETTLE_MS);
    return run();
  },
});

const perSecond = (tokens: number, seconds: readonly number[] | undefined): number | null =>
  seconds === undefined || seconds.length === 0 ? null : rounded(tokens / median(seconds));

/** Ours over the better of two. */
function ratioTo(ours: number, ...theirs: (number | null)[]): number | null {
  const best = Math.max(...theirs.map((value) => value ?? 0));
  return best === 0 ? null : rounded(ours / best, 3);
}

async function compareTraining(of: {
  engine: Engine;
  model: SpeedModel;
  sizes: Sizes;
  seed: number;
  rounds: number;
  torch: Peer | null;
  leftOut: string[];
  until: number;
}): Promise<{ plain: TrainingComparison | null; grpo: TrainingComparison | null }> {
  const { engine, sizes } = of;
  const random = new Random(of.seed);
  const { vocabulary } = of.model.shape;
  const adapter = await engine.createAdapter(adapterSpec(RANK, 1));
  const logprob = -Math.log(vocabulary);
  const advantage = 0.02;

  const rows = random.list(sizes.sequences, () => randomTokens(random, sizes.tokens, vocabulary));
  const plain = rows.map((row): Datum => ({
    prompt: row.subarray(0, 1),
    branches: [
      { tokens: row.subarray(1), weights: new Float32Array(row.length - 1).fill(1), logprobs: null, advantages: null },
    ],
  }));
  const prompt = randomTokens(random, sizes.tokens - sizes.completion, vocabulary);
  const group: Datum = {
    prompt,
    branches: random.list(sizes.sequences, () => ({
      tokens: randomTokens(random, sizes.completion, vocabulary),
      weights: null,
      logprobs: new Float32Array(sizes.completion).fill(logprob),
      advantages: new Float32Array(sizes.completion).fill(advantage),
    })),
  };
  const separate = ungrouped(group).map(({ branches }) => [...prompt, ...(branches[0]?.tokens ?? [])]);

  const ours = (name: string, loss: typeof CROSS_ENTROPY, datums: Datum[]) =>
    settled(name, () =>
      secondsOf(async () => {
        await engine.forwardBackward(adapter, loss, datums);
        await engine.optimStep(adapter, ADAM);
      }),
    );
  const theirs = (what: 'train' | 'grpo', dtype: string, tokens: number[][]) =>
    settled(`torch + PEFT ${what} ${dtype}`, async () => {
      const request = { what, dtype, tokens, completion: sizes.completion, logprob, advantage };
      const answer = await of.torch?.process.ask<{ seconds: number }>({ ...request, learningRate: ADAM.learningRate });
      return answer?.seconds ?? NaN;
    });
  const batch = rows.map((row) => [...row]);
  const cases = [
    ours('training', CROSS_ENTROPY, plain),
    ours('grpo', IMPORTANCE_SAMPLING, [group]),
    ...(of.torch === null
      ? []
      : [
          theirs('train', 'float32', batch),
          theirs('grpo', 'float32', separate),
          theirs('train', 'bfloat16', batch),
          theirs('grpo', 'bfloat16', separate),
        ]),
  ];
  const { samples, leftOut } = await interleave(cases, of.rounds, of.until);
  of.leftOut.push(...leftOut);
  await engine.dropAdapter(adapter);
  const tokens = sizes.sequences * sizes.tokens;
  const compare = (first: number): TrainingComparison | null => {
    const tokensPerS = perSecond(tokens, samples[first]);
    if (tokensPerS === null) return null;
    const float32TokensPerS = perSecond(tokens, samples[first + 2]);
    const bfloat16TokensPerS = perSecond(tokens, samples[first + 4]);
    return {
      tokensPerS,
      float32TokensPerS,
      bfloat16TokensPerS,
      ratio: ratioTo(tokensPerS, float32TokensPerS, bfloat16TokensPerS),
    };
  };
  return { plain: compare(0), grpo: compare(1) };
}

async function compareDecode(of: {
  engine: Engine;
  sizes: Sizes;
  rounds: number;
  llamaCpp: Peer | null;
  leftOut: string[];
  until: number;
}): Promise<DecodeComparison[]> {
  const { engine, sizes } = of;
  const params = { temperature: 0, topK: 0, topP: 1, maxTokens: sizes.decodeTokens, stopTokenIds: [] };
  const ours = (rows: number) =>
    settled(`decode ${rows} rows`, () =>
      secondsOf(() =>
        Promise.all(
          Array.from({ length: rows }, (_, i) =>
            engine.sample({
              policy: null,
              prompt: Int32Array.of(300 + i),
              seeds: ['0'],
              params,
              promptLogprobs: false,
            }),
          ),
        ),
      ),
    );
  const theirs = (rows: number, flashAttention: boolean) =>
    settled(`llama.cpp ${rows} rows${flashAttention ? ', flash attention' : ''}`, async () => {
      const answer = await of.llamaCpp?.process.ask<{ seconds: number }>({ rows, flashAttention });
      return answer?.seconds ?? NaN;
    });
  const kinds = of.llamaCpp === null ? 1 : 3;
  const cases = sizes.decodeRows.flatMap((rows) =>
    of.llamaCpp === null ? [ours(rows)] : [ours(rows), theirs(rows, false), theirs(rows, true)],
  );
  const { samples, leftOut } = await interleave(cases, of.rounds, of.until);
  of.leftOut.push(...leftOut);
  return sizes.decodeRows.flatMap((rows, index) => {
    const speed = (kind: number) =>
      kind < kinds ? perSecond(rows * sizes.decodeTokens, samples[index * kinds + kind]) : null;
    const tokensPerS = speed(0);
    if (tokensPerS === null) return [];
    const plainTokensPerS = speed(1);
    const flashTokensPerS = speed(2);
    return [
      {
        rows,
        tokensPerS,
        plainTokensPerS,
        flashTokensPerS,
        ratio: ratioTo(tokensPerS, plainTokensPerS, flashTokensPerS),
      },
    ];
  });
}
