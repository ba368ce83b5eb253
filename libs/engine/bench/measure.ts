import type { Engine, NumericsId } from '../src/engine.types';
import type { Peaks } from './ceilings';
import { type BenchCase, median, rounded, secondsOf } from './interleave';
import { type MachineBench, type MachineSample, medianMachine } from './machine-bench';
import type { SpeedModel } from './speed-model';

/** What a part of bench:engine measures with: one numerics id. Those of several ids are measured in turn. */
export interface Bench {
  engine: Engine;
  model: SpeedModel;
  machine: MachineBench;
  numerics: NumericsId;
  rounds: number;
  seed: number;
  leftOut: string[];
}

const GIGA = 1e9;

/** @param numerics decides what unit multiplies with the base's weights */
export function peaksOf(machine: MachineSample, numerics: NumericsId): Peaks {
  const dots = numerics === 'bf16-1' ? machine.bf16Gflops : null;
  return {
    flops: GIGA * machine.fmaGflops,
    baseFlops: GIGA * (dots ?? machine.fmaGflops),
    bytes: GIGA * machine.readGBs,
  };
}

/** One measured run: seconds, and the ceilings of the same moment. */
export interface Timed {
  seconds: number;
  machine: MachineSample;
}

/** @param after follows the work and is not measured */
export const timed = (
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
export function speed(samples: readonly Timed[], tokens: number, least: (machine: MachineSample) => number) {
  return {
    tokensPerS: rounded(tokens / median(samples.map(({ seconds }) => seconds))),
    ofCeiling: rounded(median(samples.map(({ seconds, machine }) => least(machine) / seconds)), 3),
  };
}

/** Seconds of `others` over those of `of`, round by round; empty where either has none. */
export const quotients = (of: readonly Timed[], others: readonly Timed[]): number[] =>
  others.slice(0, of.length).map(({ seconds }, round) => seconds / (of[round]?.seconds ?? NaN));
