import { keyValueWidth, linearPeak, queryWidth } from './ceilings';
import type { LinearRow } from './engine-report';
import { median, rounded } from './interleave';
import type { MachineSample } from './machine-bench';
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
