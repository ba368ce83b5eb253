import {
  type DatumRows,
  type Peaks,
  type Work,
  adapterBytes,
  adaptedWidth,
  baseReadBytes,
  decodeBytes,
  decodeWork,
  forwardWork,
  keyValueWidth,
  leastSeconds,
  trainingWork,
} from './ceilings';
import { steadyStateSeconds } from './experiment-table';
import type { BaseShape } from './speed-model';

/** One step of an experiment: a group of rollouts on one prompt, then training on it and the optimizer's step. */
export interface StepSizes {
  /** Rollouts. */
  rows: number;
  promptTokens: number;
  turns: number;
  tokensPerTurn: number;
  /** Between two turns. */
  toolTokens: number;
}

/** FLOPs and bytes that must be read between two moments at which something waits for a result. */
export interface Phase {
  work: Work;
  bytes: number;
}

const times = ({ work, bytes }: Phase, count: number): Phase => ({
  work: { base: count * work.base, other: count * work.other },
  bytes: count * bytes,
});

const sum = (phases: readonly Phase[]): Phase =>
  phases.reduce(
    (all, { work, bytes }) => ({
      work: { base: all.work.base + work.base, other: all.work.other + work.other },
      bytes: all.bytes + bytes,
    }),
    { work: { base: 0, other: 0 }, bytes: 0 },
  );

/**
 * Sampling of one step of `n` experiments in the fullest batches: the prompts, then one decode step per token of a turn;
 * before each further turn what the tool said and the token drawn last, behind keys and values that are kept.
 */
export function samplingPhases(shape: BaseShape, rank: number, sizes: StepSizes, n: number): Phase[] {
  const phases: Phase[] = [];
  const adapters = n * rank * adaptedWidth(shape) * 4;
  const keysAndValues = (positions: number) => positions * 2 * shape.layers * keyValueWidth(shape) * 4;
  const prefill = (sequences: number, rows: number, from: number): Phase => {
    const { work } = times({ work: forwardWork(shape, rank, { rows, from, headRows: 1 }), bytes: 0 }, sequences);
    return { work, bytes: baseReadBytes(shape) + adapters + keysAndValues(sequences * from) };
  };
  let length = 0;
  for (let turn = 0; turn < sizes.turns; turn++) {
    const added = turn === 0 ? sizes.promptTokens : sizes.toolTokens + 1;
    phases.push(prefill(turn === 0 ? n : n * sizes.rows, added, length));
    length += added;
    // The first token comes from the prefill; each later one attends to one position more.
    const steps = sizes.tokensPerTurn - 1;
    const decode = { rows: n * sizes.rows, context: length + (steps + 1) / 2, adapters: n, rank };
    phases.push(times({ work: decodeWork(shape, decode), bytes: decodeBytes(shape, decode) }, steps));
    length += steps;
  }
  return phases;
}

/** Training of one step of `n` experiments in one pass: weights once forward and once backward, the optimizer's state. */
export function trainingPhase(shape: BaseShape, rank: number, sizes: StepSizes, n: number): Phase {
  const own = sizes.turns * sizes.tokensPerTurn;
  const datum: DatumRows = {
    shared: sizes.promptTokens - 1,
    branches: sizes.rows,
    branchRows: own + (sizes.turns - 1) * sizes.toolTokens,
    lossRows: own,
  };
  const { work } = times({ work: trainingWork(shape, rank, datum), bytes: 0 }, n);
  return { work, bytes: 2 * baseReadBytes(shape) + n * adapterBytes(shape, rank) };
}

/**
 * The makespan of an engine that loses nothing to anything but the machine's ceilings, `n` experiments at a time. One
 * experiment is synchronous: its phases follow one another, each at the longer of arithmetic and reading. Several overlap
 * freely, in the fullest batches all the same: the longer of all arithmetic and all reading. And no step is shorter than
 * one rollout of its own, its training and its waits.
 */
export function perfectSeconds(
  of: { shape: BaseShape; rank: number; sizes: StepSizes; experiments: number; steps: number; waitsOfAllSteps: number },
  n: number,
  peaks: Peaks,
): number {
  const { shape, rank, sizes } = of;
  const least = ({ work, bytes }: Phase) => leastSeconds(work, bytes, peaks);
  const inTurn = (phases: readonly Phase[]) => phases.reduce((seconds, phase) => seconds + least(phase), 0);
  const phases = [...samplingPhases(shape, rank, sizes, n), trainingPhase(shape, rank, sizes, n)];
  const oneRollout = samplingPhases(shape, rank, { ...sizes, rows: 1 }, 1);
  return steadyStateSeconds(of, n, {
    machineS: n === 1 ? inTurn(phases) : least(sum(phases)),
    pathS: inTurn([...oneRollout, trainingPhase(shape, rank, sizes, 1)]),
    waitsOfAllSteps: of.waitsOfAllSteps,
  });
}
