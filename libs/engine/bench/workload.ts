import type {
  AdamParams,
  AdapterHandle,
  AdapterSpec,
  Branch,
  Datum,
  Engine,
  Loss,
  PolicyHandle,
  SampleRequest,
} from '../src/engine.types';
import { TARGET_MODULES } from '../src/engine.types';
import type { Random } from './random';

/** Rank `rank` on all seven modules of every layer. */
export const adapterSpec = (rank: number, seed: number): AdapterSpec => ({
  rank,
  alpha: 2 * rank,
  rslora: false,
  targets: TARGET_MODULES.slice(0, 7),
  seed: String(seed),
});

export const ADAM: AdamParams = {
  learningRate: 1e-4,
  beta1: 0.9,
  beta2: 0.95,
  eps: 1e-8,
  weightDecay: 0,
  gradClipNorm: 1,
};

export const CROSS_ENTROPY: Loss = { name: 'cross_entropy', clipLow: null, clipHigh: null };
export const IMPORTANCE_SAMPLING: Loss = { name: 'importance_sampling', clipLow: null, clipHigh: null };

export function createAdapters(engine: Engine, count: number, rank: number): Promise<AdapterHandle[]> {
  return Promise.all(Array.from({ length: count }, (_, i) => engine.createAdapter(adapterSpec(rank, i + 1))));
}

export const randomTokens = (random: Random, count: number, vocabulary: number): Int32Array =>
  Int32Array.from({ length: count }, () => random.integer(0, vocabulary - 1));

/** A plain call: one sequence per seed, at temperature 1. */
export function sampleRequest(
  policy: PolicyHandle,
  prompt: Int32Array,
  seeds: readonly string[],
  maxTokens: number,
  stopTokenIds: readonly number[] = [],
): SampleRequest {
  const params = { temperature: 1, topK: 0, topP: 1, maxTokens, stopTokenIds };
  return { policy, prompt, seeds, params, promptLogprobs: false };
}

/** A sequence of `tokens` + 1 tokens, loss on all but the first. */
export function sequence(random: Random, tokens: number, vocabulary: number): Datum {
  const targets = randomTokens(random, tokens, vocabulary);
  const weights = new Float32Array(tokens).fill(1);
  return {
    prompt: randomTokens(random, 1, vocabulary),
    branches: [{ tokens: targets, weights, logprobs: null, advantages: null }],
  };
}

/** A prompt with completions, as a reinforcement-learning step trains on them. */
export function group(
  random: Random,
  rows: { prompt: number; branches: number; tokens: number },
  vocabulary: number,
): Datum {
  const branch = (): Branch => ({
    tokens: randomTokens(random, rows.tokens, vocabulary),
    weights: null,
    logprobs: new Float32Array(rows.tokens).fill(-Math.log(vocabulary)),
    advantages: new Float32Array(rows.tokens).fill(random.real(-0.02, 0.02)),
  });
  return { prompt: randomTokens(random, rows.prompt, vocabulary), branches: random.list(rows.branches, branch) };
}

/** The same completions, each with a prompt of its own. */
export const ungrouped = ({ prompt, branches }: Datum): Datum[] =>
  branches.map((branch) => ({ prompt, branches: [branch] }));
