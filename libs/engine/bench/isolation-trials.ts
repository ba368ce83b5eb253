import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { Engine, EngineOptions, KernelPath, NumericsId } from '../src/engine.types';
import { DEFAULT_ENGINE_OPTIONS, openTrialEngine } from '../src/open-engine';
import { type AdapterScript, differingBits, drawScript, play } from './adapter-script';
import { allOffered } from './numerics';
import { type PathCounts, countPath, offeredPaths } from './offered-paths';
import { Random } from './random';
import { randomShape, shapeFor, writeRandomModel } from './random-model';

export interface IsolationReport {
  trials: number;
  differingBits: number;
  /** Share of decode steps whose rows belonged to at least two policies, 0..1. */
  mixedDecodeSteps: number;
  /** Share of training passes that held sequences of at least two adapters, 0..1. */
  mixedTrainPasses: number;
  meanAdaptersPerPass: number;
  /** Beside the neighbours: positions found in the prefix cache, blocks given up, sequences that gave up their pages. */
  prefixHitTokens: number;
  prefixEvictions: number;
  preemptions: number;
  /** An engine with one chain reordered on purpose was told apart. */
  mutationDetected: boolean;
  /** Trials whose compared run alone took each kernel path; beside neighbours the faster ones take turns. */
  paths: PathCounts;
}

/** Below this share of mixed steps the comparison would say little. */
export const LEAST_MIXED_SHARE = 0.5;
const MUTATED_TRIALS = 8;
const MOST_NEIGHBOURS = 15;
/** Adapters of a trial that are also run alone; the others start over until these have finished. */
const MOST_SUBJECTS = 4;
/** Trials at work at a time: while one waits for its engine's threads, the other computes. */
const LANES = 2;

export const isIsolated = (report: IsolationReport): boolean =>
  report.differingBits === 0 &&
  report.mutationDetected &&
  report.prefixHitTokens > 0 &&
  report.preemptions > 0 &&
  report.mixedDecodeSteps >= LEAST_MIXED_SHARE &&
  report.mixedTrainPasses >= LEAST_MIXED_SHARE;

interface Tally {
  differingBits: number;
  decodeSteps: number;
  mixedDecodeSteps: number;
  trainPasses: number;
  mixedTrainPasses: number;
  trainPassAdapters: number;
  prefixHitTokens: number;
  prefixEvictions: number;
  preemptions: number;
}

/**
 * Trains and samples random adapters on random tiny bases twice: among 1 to 15 neighbours at work, and alone on an
 * engine with other threads, kernels, chunk sizes and memory budgets. Counts the bits that differ in everything returned.
 *
 * @param numerics between which the trials are divided; null = all that this machine offers
 * @param budgetS no trial begins later; `trials` then counts those that did
 */
export async function measureIsolation(
  trials: number,
  seed: number,
  { budgetS = Infinity, numerics = null }: { budgetS?: number; numerics?: readonly NumericsId[] | null } = {},
): Promise<IsolationReport> {
  const started = Date.now();
  const pairs = kernelPairs(numerics ?? (await allOffered()), await offeredPaths());
  const sum = emptyTally();
  const paths: IsolationReport['paths'] = {};
  let begun = 0;
  const lane = async () => {
    while (begun < trials && Date.now() - started < 1000 * budgetS) {
      const trial = begun++;
      const kernels = pairOf(trial, pairs);
      const tally = await runTrial(new Random(seed + trial), kernels, false);
      for (const key of Object.keys(sum) as (keyof Tally)[]) sum[key] += tally[key];
      countPath(paths, kernels.numerics, kernels.alone, 1);
    }
  };
  await Promise.all(Array.from({ length: LANES }, lane));
  let mutationDetected = false;
  for (let trial = 0; trial < MUTATED_TRIALS && !mutationDetected; trial++) {
    mutationDetected = (await runTrial(new Random(seed + trial), pairOf(trial, pairs), true)).differingBits > 0;
  }
  return {
    trials: begun,
    differingBits: sum.differingBits,
    mixedDecodeSteps: share(sum.mixedDecodeSteps, sum.decodeSteps),
    mixedTrainPasses: share(sum.mixedTrainPasses, sum.trainPasses),
    prefixHitTokens: sum.prefixHitTokens,
    prefixEvictions: sum.prefixEvictions,
    preemptions: sum.preemptions,
    meanAdaptersPerPass: share(sum.trainPassAdapters, sum.trainPasses),
    mutationDetected,
    paths,
  };
}

interface TrialKernels {
  numerics: NumericsId;
  together: KernelPath;
  alone: KernelPath;
}

/**
 * Every pair of a path alone and a vector path beside neighbours, under every numerics id: the scalar one takes most of
 * the time. Trials take them in this order, so few trials already see every id and path.
 */
function kernelPairs(ids: readonly NumericsId[], paths: readonly KernelPath[]): TrialKernels[] {
  const fast = paths.filter((path) => path !== 'scalar');
  return (fast.length === 0 ? paths : fast).flatMap((together) =>
    paths.flatMap((alone) => ids.map((numerics) => ({ numerics, together, alone }))),
  );
}

function pairOf(trial: number, pairs: readonly TrialKernels[]): TrialKernels {
  const pair = pairs[trial % pairs.length];
  if (pair === undefined) throw new Error('isolation: no numerics id or no kernel path to compare');
  return pair;
}

const emptyTally = (): Tally => ({
  differingBits: 0,
  decodeSteps: 0,
  mixedDecodeSteps: 0,
  trainPasses: 0,
  mixedTrainPasses: 0,
  trainPassAdapters: 0,
  prefixHitTokens: 0,
  prefixEvictions: 0,
  preemptions: 0,
});

const share = (part: number, whole: number): number => (whole === 0 ? 0 : Math.round((1000 * part) / whole) / 1000);

async function runTrial(random: Random, kernels: TrialKernels, mutation: boolean): Promise<Tally> {
  const folder = mkdtempSync(join(tmpdir(), 'hotbed-isolation-'));
  try {
    const shape = shapeFor(kernels.numerics, randomShape(random));
    writeRandomModel(folder, shape, random);
    const common = Int32Array.from(random.list(130, () => random.integer(0, shape.vocabulary - 1)));
    const scripts = random.list(1 + drawNeighbours(random), () => drawScript(random, shape, common));
    const together = await openTrialEngine(randomOptions(folder, random, 'together', kernels), {
      mutation,
      preemptEvery: random.pick([0, 9, 20]),
    });
    const alone = await openTrialEngine(randomOptions(folder, random, 'alone', kernels), { mutation: false });
    try {
      return await compare(scripts, together, alone, random);
    } finally {
      await Promise.all([together.dispose(), alone.dispose()]);
    }
  } finally {
    rmSync(folder, { recursive: true });
  }
}

async function compare(scripts: AdapterScript[], together: Engine, alone: Engine, random: Random): Promise<Tally> {
  const subjects = scripts.slice(0, Math.min(MOST_SUBJECTS, scripts.length - 1));
  let subjectsAtWork = true;
  const keepBusy = async (script: AdapterScript) => {
    while (subjectsAtWork) await play(together, script, randomPause(random));
  };
  const neighbours = scripts.slice(subjects.length).map(keepBusy);
  const traces = await Promise.all(subjects.map((script) => play(together, script, randomPause(random))));
  subjectsAtWork = false;
  await Promise.all(neighbours);

  const stats = together.stats();
  let bits = 0;
  for (const [index, script] of subjects.entries()) {
    bits += differingBits(await play(alone, script, () => Promise.resolve()), traces[index] ?? new Map<never, never>());
  }
  return {
    differingBits: bits,
    decodeSteps: stats.decodeSteps,
    mixedDecodeSteps: stats.mixedDecodeSteps,
    trainPasses: stats.trainPasses,
    mixedTrainPasses: stats.mixedTrainPasses,
    trainPassAdapters: stats.trainPassAdapters,
    prefixHitTokens: stats.prefixHitTokens,
    prefixEvictions: stats.prefixEvictions,
    preemptions: stats.preemptions,
  };
}

/** 1 to 15, the larger of two draws: few neighbours seldom share a step. */
const drawNeighbours = (random: Random): number =>
  Math.max(random.integer(1, MOST_NEIGHBOURS), random.integer(1, MOST_NEIGHBOURS));

/** A few turns of the event loop, drawn anew at each call: arrivals differ, and none waits for long. */
function randomPause(random: Random): () => Promise<void> {
  return async () => {
    for (let turns = random.integer(0, 4); turns > 0; turns--) await new Promise(setImmediate);
  };
}

/** What must not matter is drawn anew for each engine. */
function randomOptions(
  modelFolder: string,
  random: Random,
  run: 'together' | 'alone',
  kernels: TrialKernels,
): EngineOptions {
  return {
    ...DEFAULT_ENGINE_OPTIONS,
    modelFolder,
    numerics: kernels.numerics,
    kernels: kernels[run],
    threads: random.integer(1, 3),
    // Little room makes sequences give way to each other and cached blocks go.
    kvCacheMiB: run === 'together' ? random.pick([1, 32]) : 32,
    // The smallest budget recomputes activations, the larger one keeps them.
    activationBudgetMiB: random.pick([1, 64]),
    maxStepRows: run === 'together' ? random.pick([48, 96, 256]) : random.pick([3, 16, 64]),
    maxTrainRows: run === 'together' ? random.pick([256, 1024]) : random.pick([16, 64, 1024]),
  };
}
