import { keyValueWidth, linearPeak, queryWidth } from './ceilings';
import type { LinearRow } from './engine-report';
import { median, rounded } from './interleave';
import type { LinearSample, MachineSample } from './machine-bench';
import { type Bench, peaksOf } from './measure';
import type { BaseShape } from './speed-model';

const GIGA = 1e9;

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
  benches: readonly Bench[],
  shapes: readonly [number, number][],
  rows: number[],
  deadline: number,
): Promise<{ linear: LinearRow[]; machine: MachineSample[] }> {
  const linear: LinearRow[] = [];
  const machine: MachineSample[] = [];
  for (const [dIn, dOut] of shapes) {
    for (const bench of benches) {
      if (Date.now() > deadline) {
        bench.leftOut.push(`linear ${bench.numerics} ${dIn} x ${dOut}`);
        continue;
      }
      const narrow = bench.model.shape.weightBytes === 2;
      const panels = bench.numerics === 'bf16-1' ? 'pairs' : narrow ? 'narrow' : 'wide';
      const layer = { dIn, dOut, rows: Int32Array.from(rows), panels, rounds: bench.rounds } as const;
      const samples = await bench.machine.linear(layer);
      machine.push(...samples.map((sample) => sample.machine));
      linear.push(...rows.map((count) => rowOf(bench, { dIn, dOut }, samples, count)));
    }
  }
  const order = (row: LinearRow) => benches.findIndex(({ numerics }) => numerics === row.numerics);
  return { linear: linear.sort((a, b) => order(a) - order(b)), machine };
}

function rowOf(
  bench: Bench,
  layer: { dIn: number; dOut: number },
  samples: readonly LinearSample[],
  rows: number,
): LinearRow {
  const of = samples.filter((sample) => sample.rows === rows);
  const ofPeak = (sample: LinearSample) =>
    (GIGA * sample.gflops) / linearPeak(rows, bench.model.shape.weightBytes, peaksOf(sample.machine, bench.numerics));
  return {
    numerics: bench.numerics,
    rows,
    ...layer,
    gflops: rounded(median(of.map(({ gflops }) => gflops))),
    ofPeak: rounded(median(of.map(ofPeak)), 3),
    ofRead: rounded(median(of.map(({ weightGBs, machine }) => weightGBs / machine.readGBs)), 3),
  };
}
