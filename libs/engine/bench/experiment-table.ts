import type { AdapterHandle, Engine } from '../src/engine.types';
import { LEAST_ROUNDS, median, rounded } from './interleave';
import { type ExperimentResult, type Task, runExperiment, sampleBatch, trainOn } from './rl-experiment';
import { NO_WAITS, type Waits } from './tool-waits';
import { adapterSpec } from './workload';

/** The same experiments for every N. */
export interface TableRun {
  task: Task;
  waits: Waits;
  experiments: number;
  steps: number;
  rank: number;
}

/** Seconds since all were submitted. */
export interface TableTimes {
  makespanS: number;
  meanS: number;
  firstS: number;
  /** Mean over all steps of all experiments. */
  stepS: number;
  /** Latest over earliest finish of the experiments that began together, right after submission; 1 where one ran. */
  spread: number;
}

export interface TableRow extends TableTimes {
  /** Mean reward of each experiment's last step. */
  rewards: number[];
  /** stateDigest of each experiment's adapter after its last step. */
  digests: string[];
  /** Tokens drawn per sampling step: how many rows share a read of the weights. */
  rowsPerDecodeStep: number;
}

/** All experiments submitted at once, `n` of them at work at a time, in the order of submission. */
export async function runTable(engine: Engine, run: TableRun, n: number): Promise<TableRow> {
  const adapters = await createForTable(engine, run, run.experiments);
  const before = engine.stats();
  const submitted = performance.now();
  const results: ExperimentResult[] = [];
  let next = 0;
  const place = async () => {
    for (let experiment = next++; experiment < run.experiments; experiment = next++) {
      const adapter = adapters[experiment];
      if (adapter !== undefined) results[experiment] = await runExperiment(engine, adapter, { ...run, experiment });
    }
  };
  await Promise.all(Array.from({ length: n }, place));
  const after = engine.stats();
  const digests = await Promise.all(adapters.map((adapter) => engine.stateDigest(adapter, String(run.steps))));
  await Promise.all(adapters.map((adapter) => engine.dropAdapter(adapter)));
  return {
    ...timesOf(results, submitted, n),
    rewards: results.map(({ reward }) => rounded(reward)),
    digests,
    rowsPerDecodeStep: rounded(
      (after.tokensSampled - before.tokensSampled) / (after.decodeSteps - before.decodeSteps),
      3,
    ),
  };
}

/** @param results in the order of submission; @param n how many ran at a time */
export function timesOf(results: readonly ExperimentResult[], submitted: number, n: number): TableTimes {
  const finishes = results.map(({ finishMs }) => (finishMs - submitted) / 1000);
  const together = finishes.slice(0, n);
  const steps = results.flatMap(({ stepSeconds }) => stepSeconds);
  const mean = (values: readonly number[]) => values.reduce((sum, value) => sum + value, 0) / values.length;
  return {
    makespanS: rounded(Math.max(...finishes)),
    meanS: rounded(mean(finishes)),
    firstS: rounded(Math.min(...finishes)),
    stepS: rounded(mean(steps)),
    spread: rounded(Math.max(...together) / Math.min(...together)),
  };
}

/** Seconds of one step of `n` experiments, each phase for all of them together: the fullest batches that there are. */
export async function phaseSeconds(engine: Engine, run: TableRun, n: number): Promise<number> {
  const adapters = await createForTable(engine, run, n);
  const runs = adapters.map((_, experiment) => ({ ...run, experiment, waits: NO_WAITS }));
  const seconds: number[] = [];
  for (let round = -1; round < LEAST_ROUNDS; round++) {
    const start = performance.now();
    const step = Math.max(0, round) % run.steps;
    const batches = await Promise.all(
      adapters.map((adapter, i) => sampleBatch(engine, adapter, runs[i] ?? fail(), step)),
    );
    await Promise.all(adapters.map((adapter, i) => trainOn(engine, adapter, run.task, batches[i]?.datums ?? [])));
    if (round >= 0) seconds.push((performance.now() - start) / 1000);
  }
  await Promise.all(adapters.map((adapter) => engine.dropAdapter(adapter)));
  return median(seconds);
}

/**
 * The shortest makespan of a steady state with `n` at a time: the machine is never idle and works in the fullest
 * batches (`together` seconds for a step of all n), and no experiment is done before its own steps (`alone` seconds
 * each) and its own waits are.
 */
export function steadyStateSeconds(
  run: { experiments: number; steps: number },
  n: number,
  step: { alone: number; together: number; waitsOfAllSteps: number },
): number {
  const waves = run.experiments / n;
  const machine = run.steps * step.together;
  const path = run.steps * step.alone + step.waitsOfAllSteps;
  return waves * Math.max(machine, path);
}

const createForTable = (engine: Engine, run: TableRun, count: number): Promise<AdapterHandle[]> =>
  Promise.all(Array.from({ length: count }, (_, i) => engine.createAdapter(adapterSpec(run.rank, i + 1))));

function fail(): never {
  throw new Error('one run per adapter');
}
