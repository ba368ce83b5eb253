import { decodeBytes, decodeWork, leastSeconds } from './ceilings';
import type { DecodeRow } from './engine-report';
import { interleave } from './interleave';
import type { MachineSample } from './machine-bench';
import { type Bench, peaksOf, speed, timed } from './measure';
import { createAdapters, sampleRequest } from './workload';

const RANK = 8;

/**
 * Sequences from a prompt of one token, so that nearly every step is a decode step of so many rows. With one adapter
 * all rows are its own; with as many adapters as rows each has its own.
 */
export async function measureDecode(
  benches: readonly Bench[],
  rows: number[],
  tokens: number,
  deadline: number,
): Promise<DecodeRow[]> {
  const kinds = rows.flatMap((count) =>
    count === 1 ? [[1, 1] as const] : [[count, 1] as const, [count, count] as const],
  );
  const subjects = await Promise.all(benches.map((bench) => pinned(bench, Math.max(...rows))));
  const seedsOf = (count: number) => Array.from({ length: count }, (_, i) => String(i));
  const cases = kinds.flatMap(([count, distinct]) =>
    subjects.map(({ bench, policies }) => {
      const seeds = seedsOf(count / distinct);
      return timed(bench, `decode ${bench.numerics}, ${count} rows, ${distinct} adapters`, () =>
        Promise.all(
          policies
            .slice(0, distinct)
            .map((policy) => bench.engine.sample(sampleRequest(policy, Int32Array.of(1), seeds, tokens))),
        ),
      );
    }),
  );
  const { samples, leftOut } = await interleave(cases, benches[0]?.rounds ?? 0, deadline);
  benches[0]?.leftOut.push(...leftOut);
  await Promise.all(subjects.map(({ letGo }) => letGo()));
  return benches.flatMap((bench, subject) =>
    kinds.flatMap(([count, distinct], index): DecodeRow[] => {
      const of = samples[index * benches.length + subject] ?? [];
      if (of.length === 0) return [];
      const { shape } = bench.model;
      const step = { rows: count, context: (tokens + 1) / 2, adapters: distinct, rank: RANK };
      const least = (machine: MachineSample) =>
        tokens * leastSeconds(decodeWork(shape, step), decodeBytes(shape, step), peaksOf(machine, bench.numerics));
      return [{ numerics: bench.numerics, rows: count, adapters: distinct, ...speed(of, count * tokens, least) }];
    }),
  );
}

async function pinned(bench: Bench, count: number) {
  const { engine } = bench;
  const adapters = await createAdapters(engine, count, RANK);
  const policies = await Promise.all(adapters.map((adapter) => engine.pin(adapter)));
  const letGo = async () => {
    for (const policy of policies) engine.release(policy);
    await Promise.all(adapters.map((adapter) => engine.dropAdapter(adapter)));
  };
  return { bench, policies, letGo };
}
