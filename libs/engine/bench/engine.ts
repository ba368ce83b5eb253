import { DEFAULT_ENGINE_OPTIONS, openEngine } from '../src/open-engine';
import { Budget } from './budget';
import { measureAdapter } from './adapter-cases';
import { measureDecode } from './decode-cases';
import type { EngineReport } from './engine-report';
import { LEAST_ROUNDS, rounded } from './interleave';
import { linearShapes, measureLinear } from './linear-cases';
import { QUICK_READ_MIB, READ_MIB, machineNow, medianMachine, openMachineBench, roundedMachine } from './machine-bench';
import type { Bench } from './measure';
import { NUMERICS_LIST_OPTION, numericsListOf } from './numerics';
import { type BenchCommand, COMMON_OPTIONS, type GivenOptions, MODEL_OPTIONS, readOptions } from './options';
import { QUICK_SHAPE, SMOLLM2_135M, speedModel } from './speed-model';
import { type TrainingKind, measureGrouped, measureTraining } from './training-cases';

export const ENGINE_BENCH: BenchCommand = {
  name: 'bench:engine',
  what: "Linear layers, decode, training, groups and adapters beside this machine's own ceilings. Random weights: SmolLM2-135M's shapes.",
  options: {
    ...COMMON_OPTIONS,
    ...MODEL_OPTIONS,
    ...NUMERICS_LIST_OPTION,
    rounds: {
      type: 'string',
      default: String(LEAST_ROUNDS),
      help: 'measured rounds of each case, after one that warms up',
    },
    only: { type: 'string', help: 'some of linear,decode,training,grouped,adapter' },
  },
};

/** How the budget is divided: parts in the order in which they run, weighed by what six rounds of each take. */
const PARTS = { linear: 10, decode: 20, training: 50, grouped: 15, adapter: 5 };
type Part = keyof typeof PARTS;
const ROWS = [1, 2, 4, 8, 16, 32, 64, 128, 256, 512];
const DECODE_ROWS = [1, 8, 32, 64];
/** Of the demo's base. */
const DEMO_SHAPES: [number, number][] = [
  [128, 128],
  [128, 256],
  [128, 768],
  [384, 128],
];

interface Sizes {
  rows: number[];
  readMiB: number;
  decodeRows: number[];
  decodeTokens: number;
  training: TrainingKind[];
  group: { prompt: number; branches: number; tokens: number };
}

/**
 * The short sequences have one row for one adapter, too: what more adapters cost shows against it alone. It runs right
 * beside the row of most adapters.
 */
const FULL: Sizes = {
  rows: ROWS,
  readMiB: READ_MIB,
  decodeRows: DECODE_ROWS,
  decodeTokens: 32,
  training: [
    { adapters: 1, sequences: 8, tokens: 256 },
    ...[4, 16, 64, 1].map((adapters) => ({ adapters, sequences: 64, tokens: 32 })),
  ],
  group: { prompt: 192, branches: 8, tokens: 64 },
};
const QUICK: Sizes = {
  rows: [1, 64],
  readMiB: QUICK_READ_MIB,
  decodeRows: [1, 8],
  decodeTokens: 4,
  training: [4, 1].map((adapters) => ({ adapters, sequences: 4, tokens: 8 })),
  group: { prompt: 12, branches: 4, tokens: 4 },
};

export async function benchEngine(options: GivenOptions): Promise<EngineReport> {
  const quick = options.has('quick');
  const sizes = quick ? QUICK : FULL;
  const seed = options.whole('seed', 0);
  const wanted = partsOf(options.text('only'));
  const weights = Object.fromEntries(Object.entries(PARTS).filter(([part]) => wanted.has(part as Part)));
  const budget = new Budget(options.whole('budget-s', 1), weights);
  const model = speedModel(options.text('model'), quick ? QUICK_SHAPE : SMOLLM2_135M, seed);
  const leftOut: string[] = [];
  const benches: Bench[] = [];
  try {
    for (const numerics of await numericsListOf(options)) {
      const engine = await openEngine({
        ...DEFAULT_ENGINE_OPTIONS,
        modelFolder: model.folder,
        numerics,
        kvCacheMiB: 1024,
        activationBudgetMiB: 4096,
      });
      const machine = openMachineBench(engine.info().kernels, sizes.readMiB);
      benches.push({ engine, model, machine, numerics, rounds: options.whole('rounds', 1), seed, leftOut });
      await machineNow(machine); // first touches
    }
    const [first] = benches;
    if (first === undefined) throw new Error('--numerics: this machine offers none');
    const shapes = quick ? linearShapes(model.shape) : [...linearShapes(model.shape), ...DEMO_SHAPES];
    const partSeconds: Record<string, number> = {};
    const run = async <T>(part: Part, otherwise: T, measure: (deadline: number) => Promise<T>): Promise<T> => {
      if (!wanted.has(part)) {
        leftOut.push(`${part}: not asked for`);
        return otherwise;
      }
      const began = budget.secondsUsed();
      const result = await measure(budget.deadlineOf(part));
      partSeconds[part] = rounded(budget.secondsUsed() - began);
      return result;
    };
    const nothing = { linear: [], machine: [] };
    const { linear, machine } = await run('linear', nothing, (deadline) =>
      measureLinear(benches, shapes, sizes.rows, deadline),
    );
    const decode = await run('decode', [], (deadline) =>
      measureDecode(benches, sizes.decodeRows, sizes.decodeTokens, deadline),
    );
    const training = await run('training', [], (deadline) => measureTraining(benches, sizes.training, deadline));
    const grouped = await run('grouped', null, (deadline) => measureGrouped(first, sizes.group, deadline));
    const adapter = await run('adapter', null, (deadline) => measureAdapter(first, deadline));
    const ceilings = machine.length > 0 ? medianMachine(machine) : await machineNow(first.machine);
    return {
      machine: roundedMachine(ceilings),
      linear,
      decode,
      training,
      grouped,
      adapter,
      model: model.name,
      kernels: Object.fromEntries(benches.map(({ numerics, engine }) => [numerics, engine.info().kernels])),
      threads: first.engine.info().threads,
      seconds: rounded(budget.secondsUsed()),
      partSeconds,
      leftOut,
    };
  } finally {
    await Promise.all(benches.map(({ engine }) => engine.dispose()));
    model.dispose();
  }
}

function partsOf(text: string | null): Set<Part> {
  const all = Object.keys(PARTS) as Part[];
  if (text === null) return new Set(all);
  return new Set(
    text.split(',').map((name) => {
      const part = all.find((each) => each === name);
      if (part === undefined) throw new Error(`--only: expected some of ${all.join(',')}; got "${name}"`);
      return part;
    }),
  );
}

export const engineOptions = (args: string[]): GivenOptions => readOptions(ENGINE_BENCH.options, args);
