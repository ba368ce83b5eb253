/** One thing to measure. */
export interface BenchCase<T> {
  name: string;
  run(): Promise<T>;
}

export interface Measured<T> {
  /** By case, in order of the rounds; empty where the time ended before the first. */
  samples: T[][];
  /** Cases with fewer rounds than wanted, in words. */
  leftOut: string[];
}

/** Fewer samples than this are no median to rely on. */
export const LEAST_ROUNDS = 5;

/**
 * Runs the cases in turn, round after round, so that all of them see the same moments of a shared machine; every other
 * round in reverse, so that none is always the later one while the machine drifts. A first round warms up (memory,
 * gradients and moments come to be) and does not count. Once `deadline` (ms since the epoch) has passed no further case starts.
 */
export async function interleave<T>(
  cases: readonly BenchCase<T>[],
  rounds: number,
  deadline: number,
): Promise<Measured<T>> {
  const samples: T[][] = cases.map(() => []);
  for (let round = -1; round < rounds; round++) {
    const inTurn = [...cases.entries()];
    for (const [index, each] of round % 2 === 0 ? inTurn : inTurn.reverse()) {
      if (Date.now() > deadline) continue;
      const sample = await each.run();
      if (round >= 0) samples[index]?.push(sample);
    }
  }
  const leftOut = cases.flatMap(({ name }, index) => {
    const done = samples[index]?.length ?? 0;
    return done >= rounds ? [] : [`${name}: ${done} of ${rounds} rounds`];
  });
  return { samples, leftOut };
}

/** @param values non-empty; an even count gives the mean of the two in the middle */
export function median(values: readonly number[]): number {
  const sorted = [...values].sort((a, b) => a - b);
  const middle = sorted.length >> 1;
  const upper = sorted[middle];
  const lower = sorted[sorted.length % 2 === 0 ? middle - 1 : middle];
  if (upper === undefined || lower === undefined) throw new Error('median of nothing');
  return (lower + upper) / 2;
}

/** Of milliseconds to three digits, as figures in JSON. */
export const rounded = (value: number, digits = 4): number => Number(value.toPrecision(digits));

export async function secondsOf(work: () => Promise<unknown>): Promise<number> {
  const start = performance.now();
  await work();
  return (performance.now() - start) / 1000;
}
