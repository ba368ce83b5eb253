import type { AdapterHandle, Datum, Engine } from '../src/engine.types';
import { median, rounded, secondsOf } from './interleave';
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

/** Seconds of the two halves of a step. */
export interface StepPhases {
  sampleS: number;
  trainS: number;
}

/** One step of `n` experiments without waits, each half for all of them together: the fullest batches that there are. */
export async function stepPhases(engine: Engine, run: TableRun, n: number, rounds: number): Promise<StepPhases> {
  const adapters = await createForTable(engine, run, n);
  const all = adapters.map((adapter, experiment) => ({
    adapter,
    of: { ...run, experiment, waits: NO_WAITS },
    datums: [] as Datum[],
  }));
  const phases: StepPhases[] = [];
  for (let round = 0; round < rounds; round++) {
    const sampleS = await secondsOf(() =>
      Promise.all(
        all.map(async (each) => {
          each.datums = (await sampleBatch(engine, each.adapter, each.of, round % run.steps)).datums;
        }),
      ),
    );
    const trainS = await secondsOf(() =>
      Promise.all(all.map((each) => trainOn(engine, each.adapter, run.task, each.datums))),
    );
    phases.push({ sampleS, trainS });
  }
  await Promise.all(adapters.map((adapter) => engine.dropAdapter(adapter)));
  return { sampleS: median(phases.map(({ sampleS }) => sampleS)), trainS: median(phases.map(({ trainS }) => trainS)) };
}

/**
 * The shortest makespan of a steady state with `n` at a time: the machine is never idle and works in the fullest
 * batches (`machineS` for a step of all n), and no step of an experiment is shorter than its slowest rollout's own
 * sampling, its training (`pathS` together) and its waits.
 */
export function steadyStateSeconds(
  run: { experiments: number; steps: number },
  n: number,
  step: { machineS: number; pathS: number; waitsOfAllSteps: number },
): number {
  const machine = run.steps * step.machineS;
  const path = run.steps * step.pathS + step.waitsOfAllSteps;
  return (run.experiments / n) * Math.max(machine, path);
}

const createForTable = (engine: Engine, run: TableRun, count: number): Promise<AdapterHandle[]> =>
  Promise.all(Array.from({ length: count }, (_, i) => engine.createAdapter(adapterSpec(run.rank, i + 1))));
