import type { AdapterHandle, Datum } from '../src/engine.types';
import { type DatumRows, flopsOf, leastArithmetic, trainingWork } from './ceilings';
import type { GroupedRow, TrainingRow } from './engine-report';
import { type BenchCase, interleave, median, rounded } from './interleave';
import type { MachineSample } from './machine-bench';
import { type Bench, type Timed, peaksOf, quotients, speed, timed } from './measure';
import { Random } from './random';
import {
  ADAM,
  CROSS_ENTROPY,
  IMPORTANCE_SAMPLING,
  adapterSpec,
  createAdapters,
  group,
  sequence,
  ungrouped,
} from './workload';

export interface TrainingKind {
  adapters: number;
  sequences: number;
  tokens: number;
}

const RANK = 8;

/**
 * One forward_backward call per adapter, all at once; the optimizer step that follows is not measured. Kinds of equal
 * sizes train on the same sequences; they are measured in the order given.
 */
export async function measureTraining(
  benches: readonly Bench[],
  kinds: TrainingKind[],
  deadline: number,
): Promise<TrainingRow[]> {
  const most = Math.max(...kinds.map((kind) => kind.adapters));
  const adapters = await Promise.all(benches.map(({ engine }) => createAdapters(engine, most, RANK)));
  // All kinds of one numerics id, then all of the next: a kind and its one-adapter kind stay neighbours.
  const cases = benches.flatMap((bench, subject) =>
    kinds.map((kind) => trainingCase(bench, adapters[subject] ?? [], kind)),
  );
  const { samples, leftOut } = await interleave(cases, benches[0]?.rounds ?? 0, deadline);
  benches[0]?.leftOut.push(...leftOut);
  await Promise.all(
    benches.flatMap(({ engine }, subject) => (adapters[subject] ?? []).map((each) => engine.dropAdapter(each))),
  );
  return benches.flatMap((bench, subject) => {
    const samplesOf = (index: number) => (index < 0 ? [] : (samples[subject * kinds.length + index] ?? []));
    return kinds
      .flatMap((kind, index): TrainingRow[] => {
        const of = samplesOf(index);
        if (of.length === 0) return [];
        const work = trainingWork(bench.model.shape, RANK, { shared: 0, branches: 1, branchRows: kind.tokens });
        const least = (machine: MachineSample) =>
          kind.sequences * leastArithmetic(work, peaksOf(machine, bench.numerics));
        const ofOneAdapter = ratioToOne(of, samplesOf(kinds.findIndex((other) => isOneOf(kind, other))));
        const measured = speed(of, kind.sequences * kind.tokens, least);
        return [{ numerics: bench.numerics, ...kind, rank: RANK, ...measured, ofOneAdapter }];
      })
      .sort((a, b) => a.sequences - b.sequences || a.adapters - b.adapters);
  });
}

function trainingCase(bench: Bench, adapters: readonly AdapterHandle[], kind: TrainingKind): BenchCase<Timed> {
  const { engine, model, numerics } = bench;
  const using = adapters.slice(0, kind.adapters);
  const random = new Random(bench.seed);
  const datums = random.list(kind.sequences, () => sequence(random, kind.tokens, model.shape.vocabulary));
  const each = kind.sequences / kind.adapters;
  const train = () =>
    Promise.all(
      using.map((adapter, i) => engine.forwardBackward(adapter, CROSS_ENTROPY, datums.slice(i * each, (i + 1) * each))),
    );
  // The gradient begins at zero, as in a run that steps after each batch.
  const step = () => Promise.all(using.map((adapter) => engine.optimStep(adapter, ADAM)));
  return timed(
    bench,
    `training ${numerics}, ${kind.adapters} adapters, ${kind.sequences} x ${kind.tokens}`,
    train,
    step,
  );
}

/** `other` has the same sequences, all of one adapter. */
const isOneOf = (kind: TrainingKind, other: TrainingKind): boolean =>
  kind.adapters > 1 && other.adapters === 1 && other.sequences === kind.sequences && other.tokens === kind.tokens;

/** Speed over that of one adapter: the median of each round's own quotient. */
function ratioToOne(of: readonly Timed[], one: readonly Timed[]): number | null {
  const ratios = quotients(of, one);
  return ratios.length === 0 ? null : rounded(median(ratios), 3);
}

/** A group of completions on one prompt, against the same sequences one by one. Tokens count as if one by one. */
export async function measureGrouped(
  bench: Bench,
  rows: { prompt: number; branches: number; tokens: number },
  deadline: number,
): Promise<GroupedRow | null> {
  const { engine, model } = bench;
  const random = new Random(bench.seed);
  const adapter = await engine.createAdapter(adapterSpec(RANK, 1));
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
  const ratios = quotients(grouped, alone);
  if (ratios.length === 0) return null;
  const flops = (datum: DatumRows) => flopsOf(trainingWork(model.shape, RANK, datum));
  const shape = { shared: rows.prompt - 1, branches: rows.branches, branchRows: rows.tokens };
  const tokens = rows.branches * (rows.prompt + rows.tokens);
  const seconds = (of: Timed[]) => of.map((sample) => sample.seconds);
  return {
    tokensPerS: rounded(tokens / median(seconds(grouped))),
    ungroupedTokensPerS: rounded(tokens / median(seconds(alone))),
    ratio: rounded(median(ratios), 3),
    ideal: rounded((rows.branches * flops({ ...shape, branches: 1 })) / flops(shape), 3),
  };
}
