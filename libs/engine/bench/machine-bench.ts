import type { KernelPath } from '../src/engine.types';
import { type NativeLinearSample, type NativeMachineSample, nativeAddon } from '../src/native-addon';
import { LEAST_ROUNDS, median, rounded } from './interleave';

export type MachineSample = NativeMachineSample;
export type LinearSample = NativeLinearSample;

/** Measures the machine's ceilings and the linear kernels beside them; holds `readMiB` of memory until collected. */
export interface MachineBench {
  machine(): Promise<MachineSample>;
  linear(layer: {
    dIn: number;
    dOut: number;
    rows: Int32Array;
    panels: 'wide' | 'narrow' | 'pairs';
    rounds: number;
  }): Promise<LinearSample[]>;
}

/** Far beyond any cache. */
export const READ_MIB = 512;
/** For --quick: in no relation to the memory's speed. */
export const QUICK_READ_MIB = 32;

export function openMachineBench(kernels: KernelPath | null, readMiB: number): MachineBench {
  const addon = nativeAddon();
  return new addon.MachineBench({ kernels, threads: null, readMiB });
}

export function medianMachine(samples: readonly MachineSample[]): MachineSample {
  const dots = samples.flatMap(({ bf16Gflops }) => (bf16Gflops === null ? [] : [bf16Gflops]));
  return {
    fmaGflops: median(samples.map(({ fmaGflops }) => fmaGflops)),
    bf16Gflops: dots.length === 0 ? null : median(dots),
    readGBs: median(samples.map(({ readGBs }) => readGBs)),
  };
}

export const roundedMachine = ({ fmaGflops, bf16Gflops, readGBs }: MachineSample): MachineSample => ({
  fmaGflops: rounded(fmaGflops),
  bf16Gflops: bf16Gflops === null ? null : rounded(bf16Gflops),
  readGBs: rounded(readGBs),
});

/** The ceilings of this moment. */
export async function machineNow(bench: MachineBench): Promise<MachineSample> {
  const samples: MachineSample[] = [];
  while (samples.length < LEAST_ROUNDS) samples.push(await bench.machine());
  return medianMachine(samples);
}
