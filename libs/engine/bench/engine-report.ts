import type { KernelPath, NumericsId } from '../src/engine.types';
import type { MachineSample } from './machine-bench';

/** What `bench:engine --json` prints. Speeds are medians; shares are medians of each round's own quotient. */
export interface EngineReport {
  machine: MachineSample;
  linear: LinearRow[];
  decode: DecodeRow[];
  training: TrainingRow[];
  grouped: GroupedRow | null;
  adapter: AdapterRow | null;
  model: string;
  /** By numerics id, in the order measured; groups and adapters are of the first. */
  kernels: Partial<Record<NumericsId, KernelPath>>;
  threads: number;
  seconds: number;
  /** Of each part. */
  partSeconds: Record<string, number>;
  /** What the time budget left out, in words. */
  leftOut: string[];
}

export interface LinearRow {
  numerics: NumericsId;
  rows: number;
  dIn: number;
  dOut: number;
  gflops: number;
  /** Of the lower of the FMA peak and what the read bandwidth allows at so many rows. */
  ofPeak: number;
  /** Weights read per second over the read bandwidth. */
  ofRead: number;
}

export interface DecodeRow {
  numerics: NumericsId;
  rows: number;
  adapters: number;
  tokensPerS: number;
  ofCeiling: number;
}

export interface TrainingRow {
  numerics: NumericsId;
  adapters: number;
  rank: number;
  tokensPerS: number;
  ofCeiling: number;
  /** Of all adapters together, and tokens of each. */
  sequences: number;
  tokens: number;
  /** Speed over that of one adapter with the same sequences, round by round; null for one, or where it was left out. */
  ofOneAdapter: number | null;
}

export interface GroupedRow {
  tokensPerS: number;
  ungroupedTokensPerS: number;
  ratio: number;
  /** The same quotient of FLOPs by formula. */
  ideal: number;
}

export interface AdapterRow {
  createMs: number;
  firstTokenMs: number;
  publishMs: number;
  restoreMs: number;
  /** Resident memory that one more training adapter takes. */
  bytes: number;
  bytesByFormula: number;
  /** Write, fsync and SHA-256 of the published file's bytes by Node, beside publishing. */
  writeMs: number;
  publishRatio: number;
  publishedBytes: number;
}
