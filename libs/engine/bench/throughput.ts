import { dirname } from 'node:path';
import type { Engine, NumericsId } from '../src/engine.types';
import { DEFAULT_ENGINE_OPTIONS, openEngine } from '../src/open-engine';
import { measureColdStart } from './cold-start';
import { type TableRow, type TableRun, steadyStateSeconds, runTable, stepPhases } from './experiment-table';
import { LEAST_ROUNDS, rounded } from './interleave';
import { type StepSizes, perfectSeconds } from './machine-bound';
import {
  type MachineBench,
  type MachineSample,
  QUICK_READ_MIB,
  READ_MIB,
  machineNow,
  medianMachine,
  openMachineBench,
  roundedMachine,
} from './machine-bench';
import { peaksOf } from './measure';
import { NUMERICS_OPTION, numericsOf } from './numerics';
import { type BenchCommand, COMMON_OPTIONS, type GivenOptions, MODEL_OPTIONS, readOptions } from './options';
import { QUICK_SHAPE, SMOLLM2_70M, type SpeedModel, speedModel } from './speed-model';
import { repositoryFile } from './repository-file';
import { seedlingTask, speedTask } from './throughput-tasks';
import { NO_WAITS, drawWaits, longestWaits } from './tool-waits';

export const THROUGHPUT_BENCH: BenchCommand = {
  name: 'bench:throughput',
  what: 'Experiments of synchronous reinforcement-learning steps, all submitted at once, N at a time, on a hot engine.',
  options: {
    ...COMMON_OPTIONS,
    ...MODEL_OPTIONS,
    ...NUMERICS_OPTION,
    env: { type: 'string', default: 'both', help: 'plain, agentic (rollouts wait for tools) or both' },
    n: { type: 'string', default: '1,2,4,8', help: 'experiments at work at a time' },
    experiments: { type: 'string', default: '8', help: 'of each table; every N divides it' },
    steps: { type: 'string', default: '10', help: 'of each experiment' },
    rows: { type: 'string', default: '4', help: 'rollouts of a step: one group on one prompt' },
    rank: { type: 'string', default: '8', help: 'of the adapters' },
    'prompt-tokens': { type: 'string', default: '16', help: 'of a step' },
    tokens: { type: 'string', default: '48', help: 'sampled by each rollout, over all its turns' },
    turns: { type: 'string', default: '3', help: 'of an agentic rollout; between two of them stands a tool call' },
    'tool-tokens': { type: 'string', default: '8', help: 'that a tool answers with' },
    'wait-median-s': { type: 'string', default: '0.4', help: 'seconds of a tool call, log-normal' },
    'wait-sigma': { type: 'string', default: '0.6', help: "standard deviation of the wait's logarithm" },
  },
};

type Environment = 'plain' | 'agentic';

export interface ThroughputRow extends TableRow {
  env: Environment;
  n: number;
  /** The shortest makespan of a steady state of this engine's own phases (see steadyStateSeconds). */
  boundS: number;
  /** That of an engine which loses nothing to anything but the machine's ceilings (see perfectSeconds). */
  machineBoundS: number;
  /** stateDigest of each experiment on seedling, whose rewards stand in `rewards`. */
  rewardDigests: string[];
}

export interface RatioBounds {
  /** Makespan of N = 1 over the largest N's `boundS`: what the ratio would be if scheduling lost nothing. */
  ownPhases: number;
  /**
   * The ratio of an engine that reaches the machine's ceilings at every N. No upper bound of others' ratios: an engine
   * that is slow at N = 1 can exceed it.
   */
  machine: number;
}

export interface ThroughputReport {
  rows: ThroughputRow[];
  /** A process of its own, loading the base, to the first token. */
  coldStartS: number | null;
  /** Makespan of N = 1 over that of the largest N. */
  ratio: Record<Environment, number | null>;
  /** What the ratio is measured against; null where N = 1 was left out. */
  bound: Record<Environment, RatioBounds | null>;
  /** The ceilings, medians over the run. */
  machine: MachineSample;
  /** Every adapter's bytes are equal across all N, of the speed columns and of the reward columns. */
  equalBytes: boolean;
  model: string;
  /** Of the speed columns; seedling's are of f32-1. */
  numerics: NumericsId;
  /** Of waits between turns, in words. */
  waits: string;
  seconds: number;
  leftOut: string[];
}

const SHORT_LOOK = 3;
/** seedling answers in milliseconds: its tools are as much faster, so that the reward columns take seconds. */
const SEEDLING_WAIT_SHARE = 0.02;

export const throughputOptions = (args: string[]): GivenOptions => readOptions(THROUGHPUT_BENCH.options, args);

export async function benchThroughput(options: GivenOptions): Promise<ThroughputReport> {
  const plan = planOf(options);
  const model = speedModel(options.text('model'), plan.quick ? QUICK_SHAPE : SMOLLM2_70M, plan.seed);
  try {
    const numerics = numericsOf(options);
    const base = { ...DEFAULT_ENGINE_OPTIONS, numerics, kvCacheMiB: 1024, activationBudgetMiB: 2048 };
    const engine = await openEngine({ ...base, modelFolder: model.folder });
    const seedling = await openEngine({
      ...DEFAULT_ENGINE_OPTIONS,
      modelFolder: dirname(repositoryFile('models', 'seedling', 'config.json')),
    });
    try {
      const machine = openMachineBench(engine.info().kernels, plan.quick ? QUICK_READ_MIB : READ_MIB);
      await machineNow(machine); // first touches
      const leftOut: string[] = [];
      const rows: ThroughputRow[] = [];
      const samples: MachineSample[] = [];
      const bound: ThroughputReport['bound'] = { plain: null, agentic: null };
      for (const env of plan.environments) {
        const run = speedRun(plan, env, model.shape.vocabulary);
        const measured = await measureEnvironment({ engine, seedling, machine, model, plan, env, run, leftOut });
        rows.push(...measured.rows);
        samples.push(...measured.samples);
        bound[env] = measured.bound;
      }
      const coldStartS = plan.timeIsOver() ? null : rounded(await measureColdStart(model.folder, numerics));
      if (coldStartS === null) leftOut.push('cold start');
      return {
        rows,
        coldStartS,
        ratio: { plain: ratioOf(rows, 'plain'), agentic: ratioOf(rows, 'agentic') },
        bound,
        machine: roundedMachine(medianMachine(samples)),
        equalBytes: haveEqualBytes(rows),
        model: model.name,
        numerics,
        waits: `log-normal, median ${plan.wait.medianS} s, sigma ${plan.wait.sigma}, ${plan.turns - 1} calls a rollout`,
        seconds: rounded(plan.secondsUsed()),
        leftOut,
      };
    } finally {
      await Promise.all([engine.dispose(), seedling.dispose()]);
    }
  } finally {
    model.dispose();
  }
}

type Plan = ReturnType<typeof planOf>;

function planOf(options: GivenOptions) {
  const started = Date.now();
  const quick = options.has('quick');
  const env = options.text('env');
  if (env !== 'plain' && env !== 'agentic' && env !== 'both') {
    throw new Error(`--env: expected plain, agentic or both; got "${env ?? ''}"`);
  }
  const environments: Environment[] = env === 'both' ? ['plain', 'agentic'] : [env];
  const experiments = options.whole('experiments', 1);
  const ns = options.wholes('n');
  for (const n of ns) {
    if (experiments % n !== 0) throw new Error(`--n: ${n} does not divide ${experiments} experiments`);
  }
  const turns = options.whole('turns', 1);
  const tokens = options.whole('tokens', 1);
  if (tokens % turns !== 0) throw new Error(`--tokens: ${tokens} cannot be shared by ${turns} turns`);
  const budgetS = options.whole('budget-s', 1);
  const secondsUsed = () => (Date.now() - started) / 1000;
  return {
    quick,
    environments,
    // The ends of the ratio first: what the budget leaves out lies between them.
    ns: [...ns].sort((a, b) => rankOf(a, ns) - rankOf(b, ns)),
    experiments,
    steps: options.whole('steps', 1),
    rows: options.whole('rows', 2),
    rank: options.whole('rank', 1),
    promptTokens: options.whole('prompt-tokens', 1),
    tokens,
    turns,
    toolTokens: options.whole('tool-tokens', 1),
    wait: { medianS: options.number('wait-median-s'), sigma: options.number('wait-sigma') },
    seed: options.whole('seed', 0),
    budgetS,
    secondsUsed,
    timeIsOver: () => secondsUsed() > budgetS,
  };
}

const rankOf = (n: number, ns: readonly number[]): number =>
  n === Math.max(...ns) ? 0 : n === Math.min(...ns) ? 1 : 1 + n;

const turnsOf = (plan: Plan, env: Environment): number => (env === 'plain' ? 1 : plan.turns);

function sizesOf(plan: Plan, env: Environment): StepSizes {
  const { rows, promptTokens, toolTokens } = plan;
  const turns = turnsOf(plan, env);
  return { rows, promptTokens, turns, tokensPerTurn: plan.tokens / turns, toolTokens };
}

function speedRun(plan: Plan, env: Environment, vocabulary: number): TableRun {
  const { rows, steps, experiments, rank } = plan;
  const shape = { steps, rollouts: rows, calls: turnsOf(plan, env) - 1 };
  return {
    task: speedTask(sizesOf(plan, env), vocabulary, plan.seed),
    waits: env === 'plain' ? NO_WAITS : drawWaits(plan.wait, plan.seed, shape),
    experiments,
    steps,
    rank,
  };
}

function seedlingRun(plan: Plan, env: Environment): TableRun {
  const task = seedlingTask(env === 'plain' ? 1 : 2);
  const { steps, experiments, rank, wait } = plan;
  const shape = { steps, rollouts: task.groupSize * task.prompts(0, 0).length, calls: 1 };
  const waits = drawWaits({ ...wait, medianS: wait.medianS * SEEDLING_WAIT_SHARE }, plan.seed, shape);
  return { task, waits: env === 'plain' ? NO_WAITS : waits, experiments, steps, rank };
}

/** One environment's rows and what its ratio is measured against; the machine's ceilings before each of its parts. */
async function measureEnvironment(of: {
  engine: Engine;
  seedling: Engine;
  machine: MachineBench;
  model: SpeedModel;
  plan: Plan;
  env: Environment;
  run: TableRun;
  leftOut: string[];
}): Promise<{ rows: ThroughputRow[]; bound: RatioBounds | null; samples: MachineSample[] }> {
  const { engine, seedling, plan, env, run } = of;
  const most = Math.max(...plan.ns);
  const waitsOfAllSteps = longestWaits(run.waits, {
    steps: run.steps,
    rollouts: plan.rows,
    calls: turnsOf(plan, env) - 1,
  });
  const samples: MachineSample[] = [];
  const beside = async <T>(measure: () => Promise<T>): Promise<T> => {
    samples.push(await of.machine.machine(), await of.machine.machine());
    return measure();
  };
  const machineS = new Map<number, number>();
  let trainAloneS = 0;
  for (const n of new Set([1, ...plan.ns])) {
    // The largest N decides the ratio's bound; the others take a shorter look.
    const { sampleS, trainS } = await beside(() => stepPhases(engine, run, n, n === most ? LEAST_ROUNDS : SHORT_LOOK));
    machineS.set(n, sampleS + trainS);
    if (n === 1) trainAloneS = trainS;
  }
  const oneRollout = await stepPhases(engine, { ...run, task: { ...run.task, groupSize: 1 } }, 1, SHORT_LOOK);
  const pathS = oneRollout.sampleS + trainAloneS;
  const boundOf = (n: number) =>
    steadyStateSeconds(run, n, { machineS: machineS.get(n) ?? NaN, pathS, waitsOfAllSteps });
  // The time of the environments that follow is theirs.
  const ofEach = plan.budgetS / plan.environments.length;
  const until = ofEach * (1 + plan.environments.indexOf(env));
  const measured: Omit<ThroughputRow, 'machineBoundS'>[] = [];
  for (const n of plan.ns) {
    if (plan.secondsUsed() + boundOf(n) > until) {
      of.leftOut.push(`${env}, N = ${n}: at least ${rounded(boundOf(n))} s`);
      continue;
    }
    const row = await beside(() => runTable(engine, run, n));
    const learned = await runTable(seedling, seedlingRun(plan, env), n);
    const boundS = rounded(boundOf(n));
    measured.push({ env, n, ...row, rewards: learned.rewards, rewardDigests: learned.digests, boundS });
  }
  const peaks = peaksOf(medianMachine(samples), engine.info().numericsId);
  const workload = { ...run, shape: of.model.shape, sizes: sizesOf(plan, env), waitsOfAllSteps };
  const machineBoundOf = (n: number) => perfectSeconds(workload, n, peaks);
  const rows = measured
    .map((row) => ({ ...row, machineBoundS: rounded(machineBoundOf(row.n)) }))
    .sort((a, b) => a.n - b.n);
  const alone = rows.find(({ n }) => n === 1);
  const bound =
    alone === undefined
      ? null
      : {
          ownPhases: rounded(alone.makespanS / boundOf(most), 3),
          machine: rounded(machineBoundOf(1) / machineBoundOf(most), 3),
        };
  return { rows, bound, samples };
}

export function ratioOf(
  rows: readonly Pick<ThroughputRow, 'env' | 'n' | 'makespanS'>[],
  env: Environment,
): number | null {
  const of = rows.filter((row) => row.env === env);
  const alone = of.find(({ n }) => n === 1);
  const most = of.reduce<(typeof of)[number] | undefined>((a, b) => (a === undefined || b.n > a.n ? b : a), undefined);
  if (alone === undefined || most === undefined || most.n === 1) return null;
  return rounded(alone.makespanS / most.makespanS, 3);
}

/** Within each environment: the same experiment ends with the same bytes whatever N. */
export function haveEqualBytes(rows: readonly Pick<ThroughputRow, 'env' | 'digests' | 'rewardDigests'>[]): boolean {
  return (['plain', 'agentic'] as const).every((env) => {
    const of = rows.filter((row) => row.env === env);
    return of.every((row) =>
      (['digests', 'rewardDigests'] as const).every((name) => row[name].join() === of[0]?.[name].join()),
    );
  });
}
