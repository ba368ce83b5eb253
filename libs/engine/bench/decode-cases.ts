import type { PolicyHandle } from '../src/engine.types';
import { decodeBytes, decodeWork, leastSeconds } from './ceilings';
import type { DecodeRow } from './engine-report';
import { interleave } from './interleave';
import type { MachineSample } from './machine-bench';
import { type Bench, peaksOf, speed, timed } from './measure';
import { createAdapters, sampleRequest } from './workload';

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
      leastSeconds(decodeWork(model.shape, step), decodeBytes(model.shape, step), peaksOf(machine, bench.numerics));
    return [{ numerics: bench.numerics, rows: count, adapters: distinct, ...speed(of, count * tokens, least) }];
  });
}
