import { createHash } from 'node:crypto';
import { closeSync, fsyncSync, mkdtempSync, openSync, readFileSync, rmSync, writeSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { Datum, Engine, PolicyHandle } from '../src/engine.types';
import {
  type DatumRows,
  adapterBytes,
  decodeBytes,
  decodeFlops,
  keyValueWidth,
  leastSeconds,
  linearPeak,
  queryWidth,
  trainingFlops,
} from './ceilings';
import type { AdapterRow, DecodeRow, GroupedRow, LinearRow, TrainingRow } from './engine-report';
import { type BenchCase, interleave, median, rounded, secondsOf } from './interleave';
import { type MachineBench, type MachineSample, medianMachine } from './machine-bench';
import { Random } from './random';
import type { BaseShape, SpeedModel } from './speed-model';
import {
  ADAM,
  CROSS_ENTROPY,
  IMPORTANCE_SAMPLING,
  adapterSpec,
  createAdapters,
  group,
  randomTokens,
  sampleRequest,
  sequence,
  ungrouped,
} from './workload';

/** What a part measures with, and until when. */
export interface Bench {
  engine: Engine;
  model: SpeedModel;
  machine: MachineBench;
  numerics: string;
  rounds: number;
  seed: number;
  leftOut: string[];
}

const GIGA = 1e9;

const peaksOf = (machine: MachineSample, numerics: string) => ({
  flops: GIGA * (numerics.startsWith('bf16') ? (machine.bf16Gflops ?? machine.fmaGflops) : machine.fmaGflops),
  bytes: GIGA * machine.readGBs,
});

/** A model's layer shapes as the engine multiplies them: q|k|v and gate|up are one product each. */
export function linearShapes(shape: BaseShape): [dIn: number, dOut: number][] {
  const d = shape.hidden;
  const q = queryWidth(shape);
  return [
    [q, d],
    [d, q + 2 * keyValueWidth(shape)],
    [d, 2 * shape.intermediate],
    [shape.intermediate, d],
    [d, shape.vocabulary],
  ];
}

export async function measureLinear(
  bench: Bench,
  shapes: readonly [number, number][],
  rows: number[],
  deadline: number,
): Promise<{ linear: LinearRow[]; machine: MachineSample[] }> {
  const linear: LinearRow[] = [];
  const machine: MachineSample[] = [];
  const narrow = bench.model.shape.weightBytes === 2;
  for (const [dIn, dOut] of shapes) {
    if (Date.now() > deadline) {
      bench.leftOut.push(`linear ${dIn} x ${dOut}`);
      continue;
    }
    const layer = { dIn, dOut, rows: Int32Array.from(rows), narrow, rounds: bench.rounds };
    const samples = await bench.machine.linear(layer);
    machine.push(...samples.map((sample) => sample.machine));
    for (const count of rows) {
      const of = samples.filter((sample) => sample.rows === count);
      const ofPeak = (sample: (typeof of)[number]) =>
        (GIGA * sample.gflops) /
        linearPeak(count, bench.model.shape.weightBytes, peaksOf(sample.machine, bench.numerics));
      linear.push({
        numerics: bench.numerics,
        rows: count,
        dIn,
        dOut,
        gflops: rounded(median(of.map(({ gflops }) => gflops))),
        ofPeak: rounded(median(of.map(ofPeak)), 3),
        ofRead: rounded(median(of.map(({ weightGBs, machine }) => weightGBs / machine.readGBs)), 3),
      });
    }
  }
  return { linear, machine };
}

/** One measured run: seconds, and the ceilings of the same moment. */
interface Timed {
  seconds: number;
  machine: MachineSample;
}

/** @param after follows the work and is not measured */
const timed = (
  bench: Bench,
  name: string,
  work: () => Promise<unknown>,
  after: () => Promise<unknown> = () => Promise.resolve(),
): BenchCase<Timed> => ({
  name,
  run: async () => {
    const machine = medianMachine([await bench.machine.machine(), await bench.machine.machine()]);
    const seconds = await secondsOf(work);
    await after();
    return { seconds, machine };
  },
});

/** `tokensPerS` and `ofCeiling` of runs of `tokens` tokens whose least time is `least`. */
function speed(samples: readonly Timed[], tokens: number, least: (machine: MachineSample) => number) {
  return {
    tokensPerS: rounded(tokens / median(samples.map(({ seconds }) => seconds))),
    ofCeiling: rounded(median(samples.map(({ seconds, machine }) => least(machine) / seconds)), 3),
  };
}

/**
 * Sequences from a prompt of one token, so that nearly every step is a decode step of so many rows. With one adapter
 * all rows are its own; with as many adapters as rows each has its own.
 */
export async function measureDecode(
  bench: Bench,
  rows: number[],
  tokens: number,
  deadline: number,
): Promise<DecodeRow[]> {
  const { engine, model } = bench;
  const rank = 8;
  const adapters = await createAdapters(engine, Math.max(...rows), rank);
  const policies = await Promise.all(adapters.map((adapter) => engine.pin(adapter)));
  const seedsOf = (count: number) => Array.from({ length: count }, (_, i) => String(i));
  const sample = (policy: PolicyHandle, sequences: number) =>
    engine.sample(sampleRequest(policy, Int32Array.of(1), seedsOf(sequences), tokens));
  const kinds = rows.flatMap((count) =>
    count === 1 ? [[1, 1] as const] : [[count, 1] as const, [count, count] as const],
  );
  const cases = kinds.map(([count, distinct]) => {
    const using = policies.slice(0, distinct);
    return timed(bench, `decode ${count} rows, ${distinct} adapters`, () =>
      Promise.all(using.map((policy) => sample(policy, count / distinct))),
    );
  });
  const { samples, leftOut } = await interleave(cases, bench.rounds, deadline);
  bench.leftOut.push(...leftOut);
  for (const policy of policies) engine.release(policy);
  await Promise.all(adapters.map((adapter) => engine.dropAdapter(adapter)));
  return kinds.flatMap(([count, distinct], index) => {
    const of = samples[index] ?? [];
    if (of.length === 0) return [];
    const step = { rows: count, context: (tokens + 1) / 2, adapters: distinct, rank };
    const least = (machine: MachineSample) =>
      tokens *
      leastSeconds(decodeFlops(model.shape, step), decodeBytes(model.shape, step), peaksOf(machine, bench.numerics));
    return [{ numerics: bench.numerics, rows: count, adapters: distinct, ...speed(of, count * tokens, least) }];
  });
}

export interface TrainingKind {
  adapters: number;
  sequences: number;
  tokens: number;
}

/** One forward_backward call per adapter, all at once; the optimizer step that follows is not measured. */
export async function measureTraining(bench: Bench, kinds: TrainingKind[], deadline: number): Promise<TrainingRow[]> {
  const { engine, model } = bench;
  const rank = 8;
  const random = new Random(bench.seed);
  const adapters = await createAdapters(engine, Math.max(...kinds.map((kind) => kind.adapters)), rank);
  const cases = kinds.map((kind) => {
    const using = adapters.slice(0, kind.adapters);
    const datums = random.list(kind.sequences, () => sequence(random, kind.tokens, model.shape.vocabulary));
    const each = kind.sequences / kind.adapters;
    const train = () =>
      Promise.all(
        using.map((adapter, i) =>
          engine.forwardBackward(adapter, CROSS_ENTROPY, datums.slice(i * each, (i + 1) * each)),
        ),
      );
    // The gradient begins at zero, as in a run that steps after each batch.
    const step = () => Promise.all(using.map((adapter) => engine.optimStep(adapter, ADAM)));
    return timed(bench, `training ${kind.adapters} adapters, ${kind.sequences} x ${kind.tokens}`, train, step);
  });
  const { samples, leftOut } = await interleave(cases, bench.rounds, deadline);
  bench.leftOut.push(...leftOut);
  await Promise.all(adapters.map((adapter) => engine.dropAdapter(adapter)));
  return kinds.flatMap((kind, index) => {
    const of = samples[index] ?? [];
    if (of.length === 0) return [];
    const datum = { shared: 0, branches: 1, branchRows: kind.tokens };
    const flops = kind.sequences * trainingFlops(model.shape, rank, datum);
    const least = (machine: MachineSample) => flops / peaksOf(machine, bench.numerics).flops;
    return [{ numerics: bench.numerics, ...kind, rank, ...speed(of, kind.sequences * kind.tokens, least) }];
  });
}

/** A group of completions on one prompt, against the same sequences one by one. Tokens count as if one by one. */
export async function measureGrouped(
  bench: Bench,
  rows: { prompt: number; branches: number; tokens: number },
  deadline: number,
): Promise<GroupedRow | null> {
  const { engine, model } = bench;
  const rank = 8;
  const random = new Random(bench.seed);
  const adapter = await engine.createAdapter(adapterSpec(rank, 1));
  const together = group(random, rows, model.shape.vocabulary);
  const apart = ungrouped(together);
  const train = (name: string, datums: Datum[]) =>
    timed(
      bench,
      name,
      () => engine.forwardBackward(adapter, IMPORTANCE_SAMPLING, datums),
      () => engine.optimStep(adapter, ADAM),
    );
  const cases = [train('grouped', [together]), train('ungrouped', apart)];
  const { samples, leftOut } = await interleave(cases, bench.rounds, deadline);
  bench.leftOut.push(...leftOut);
  await engine.dropAdapter(adapter);
  const [grouped = [], alone = []] = samples;
  const pairs = Math.min(grouped.length, alone.length);
  if (pairs === 0) return null;
  const flops = (datum: DatumRows) => trainingFlops(model.shape, rank, datum);
  const shape = { shared: rows.prompt - 1, branches: rows.branches, branchRows: rows.tokens };
  const tokens = rows.branches * (rows.prompt + rows.tokens);
  const seconds = (of: Timed[]) => of.slice(0, pairs).map((sample) => sample.seconds);
  const ratios = seconds(alone).map((other, i) => other / (grouped[i]?.seconds ?? NaN));
  return {
    tokensPerS: rounded(tokens / median(seconds(grouped))),
    ungroupedTokensPerS: rounded(tokens / median(seconds(alone))),
    ratio: rounded(median(ratios), 3),
    ideal: rounded((rows.branches * flops({ ...shape, branches: 1 })) / flops(shape), 3),
  };
}

/** What an adapter costs: to make, to answer first, to publish as a sampler version, to bring back, to keep. */
export async function measureAdapter(bench: Bench, deadline: number): Promise<AdapterRow | null> {
  const { engine, model } = bench;
  const rank = 8;
  const random = new Random(bench.seed);
  const folder = mkdtempSync(join(tmpdir(), 'hotbed-bench-adapter-'));
  try {
    const prompt = randomTokens(random, 16, model.shape.vocabulary);
    const round = async () => {
      const start = performance.now();
      const adapter = await engine.createAdapter(adapterSpec(rank, random.integer(1, 1e9)));
      const created = performance.now();
      const policy = await engine.pin(adapter);
      await engine.sample(sampleRequest(policy, prompt, ['1'], 1));
      const sampled = performance.now();
      engine.release(policy);
      await engine.forwardBackward(adapter, CROSS_ENTROPY, [sequence(random, 16, model.shape.vocabulary)]);
      await engine.optimStep(adapter, ADAM);

      const path = join(folder, 'published.safetensors');
      const publishing = performance.now();
      const version = await engine.pin(adapter);
      const file = await engine.exportWeights(version, path);
      const published = performance.now();
      engine.release(version);
      const writeMs = writeAndHash(join(folder, 'written'), readFileSync(path));

      const snapshot = join(folder, 'snapshot');
      await engine.snapshot(adapter, '1', snapshot);
      const restoring = performance.now();
      const restored = await engine.restore(snapshot);
      const restoredAt = performance.now();
      await engine.dropAdapter(restored.adapter);
      await engine.dropAdapter(adapter);
      return {
        createMs: created - start,
        firstTokenMs: sampled - created,
        publishMs: published - publishing,
        writeMs,
        restoreMs: restoredAt - restoring,
        publishedBytes: file.bytes,
      };
    };
    const { samples, leftOut } = await interleave([{ name: 'adapter', run: round }], bench.rounds, deadline);
    bench.leftOut.push(...leftOut);
    const of = samples[0] ?? [];
    if (of.length === 0) return null;
    const middle = (pick: (sample: (typeof of)[number]) => number) => rounded(median(of.map(pick)));
    return {
      createMs: middle((sample) => sample.createMs),
      firstTokenMs: middle((sample) => sample.firstTokenMs),
      publishMs: middle((sample) => sample.publishMs),
      restoreMs: middle((sample) => sample.restoreMs),
      bytes: await trainedBytes(bench, rank),
      bytesByFormula: adapterBytes(model.shape, rank),
      writeMs: middle((sample) => sample.writeMs),
      publishRatio: middle((sample) => sample.publishMs / sample.writeMs),
      publishedBytes: of[0]?.publishedBytes ?? 0,
    };
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}

/** Milliseconds that writing, syncing and hashing the bytes takes without us. */
function writeAndHash(path: string, bytes: Buffer): number {
  const start = performance.now();
  const file = openSync(path, 'w');
  writeSync(file, bytes);
  fsyncSync(file);
  closeSync(file);
  createHash('sha256').update(bytes).digest('hex');
  return performance.now() - start;
}

/** What the engine holds for an adapter that has trained and is at rest. */
async function trainedBytes({ engine, model, seed }: Bench, rank: number): Promise<number> {
  const random = new Random(seed);
  const adapter = await engine.createAdapter(adapterSpec(rank, 1));
  await engine.forwardBackward(adapter, CROSS_ENTROPY, [sequence(random, 4, model.shape.vocabulary)]);
  await engine.optimStep(adapter, ADAM);
  const memory = await engine.adapterMemory(adapter);
  await engine.dropAdapter(adapter);
  return memory.stateBytes + memory.inFlightBytes + memory.policyBytes + memory.packedBytes;
}
