import type { BaseShape } from './speed-model';

/**
 * What the machine's ceilings allow, by formula. Letters as in native/README.md: T tokens, L layers, d hidden,
 * V vocabulary, r rank, qd = query heads x head dimension, P = linear weights without embeddings,
 * S = sum of (dIn + dOut) over the seven adapted modules of all layers.
 *
 * 1. Forward of one row: 2P + 2rS + 4 L qd c, with c the positions it attends to; + 2Vd where the head runs.
 * 2. Backward of one row with a frozen base: 2P + 4rS + 10 L qd c; + 2Vd where the head ran.
 * 3. So one token of a whole sequence of T: 4P + 4Vd + 6rS + 7 L qd T (c is T/2 on average).
 * 4. A decode step reads the weights once, each sequence's keys and values, and each distinct adapter's A and B.
 * 5. A step takes at least the longer of its FLOPs at the peak and its bytes at the read bandwidth. Products with the
 *    base's weights (P and Vd) have the peak of the unit that the numerics id computes them with, all others that of
 *    fp32 multiply-adds.
 */
export interface Peaks {
  /** FLOP/s of fp32 multiply-adds. */
  flops: number;
  /** FLOP/s of the unit that multiplies with the base's weights. */
  baseFlops: number;
  /** Bytes/s read from memory. */
  bytes: number;
}

/** FLOPs: products with the base's weights, and all others (adapters, attention). */
export interface Work {
  base: number;
  other: number;
}

export const flopsOf = ({ base, other }: Work): number => base + other;

const FLOAT_BYTES = 4;

export const queryWidth = (shape: BaseShape): number => shape.heads * shape.headDim;
export const keyValueWidth = (shape: BaseShape): number => shape.keyValueHeads * shape.headDim;

/** P */
export function linearWeights(shape: BaseShape): number {
  const q = queryWidth(shape);
  const kv = keyValueWidth(shape);
  return shape.layers * shape.hidden * (2 * q + 2 * kv + 3 * shape.intermediate);
}

/** Vd */
export const headWeights = (shape: BaseShape): number => shape.vocabulary * shape.hidden;

/** S, with all seven modules adapted. */
export function adaptedWidth(shape: BaseShape): number {
  const d = shape.hidden;
  const attention = 2 * (d + queryWidth(shape)) + 2 * (d + keyValueWidth(shape));
  return shape.layers * (attention + 3 * (d + shape.intermediate));
}

/** Of a training adapter: A and B, m, v, gradient. */
export const adapterBytes = (shape: BaseShape, rank: number): number => 16 * rank * adaptedWidth(shape);

/** Rows that attend to positions `from` + 1 .. `from` + `count`, together. */
const attended = (from: number, count: number): number => count * from + (count * (count + 1)) / 2;

/** A datum's rows: shared ones, then branches of equal length behind them. Loss sits on branch rows. */
export interface DatumRows {
  shared: number;
  branches: number;
  branchRows: number;
  /** Rows of a branch that carry loss; all of them where it is not given. */
  lossRows?: number;
}

/** Forward and backward of one datum. */
export function trainingWork(shape: BaseShape, rank: number, datum: DatumRows): Work {
  const rows = datum.shared + datum.branches * datum.branchRows;
  const positions = attended(0, datum.shared) + datum.branches * attended(datum.shared, datum.branchRows);
  const lossRows = datum.branches * (datum.lossRows ?? datum.branchRows);
  return {
    base: rows * 4 * linearWeights(shape) + lossRows * 4 * headWeights(shape),
    other: rows * 6 * rank * adaptedWidth(shape) + 14 * shape.layers * queryWidth(shape) * positions,
  };
}

/** Forward of one sequence's `rows` rows behind `from` others; the head runs on `headRows` of them. */
export function forwardWork(
  shape: BaseShape,
  rank: number,
  { rows, from, headRows }: { rows: number; from: number; headRows: number },
): Work {
  return {
    base: rows * 2 * linearWeights(shape) + headRows * 2 * headWeights(shape),
    other: rows * 2 * rank * adaptedWidth(shape) + 4 * shape.layers * queryWidth(shape) * attended(from, rows),
  };
}

/** One decode step: `rows` sequences that attend to `context` positions each, of `adapters` distinct adapters. */
export interface DecodeStep {
  rows: number;
  context: number;
  adapters: number;
  rank: number;
}

export function decodeWork(shape: BaseShape, step: DecodeStep): Work {
  const lora = step.adapters === 0 ? 0 : 2 * step.rank * adaptedWidth(shape);
  return {
    base: step.rows * 2 * (linearWeights(shape) + headWeights(shape)),
    other: step.rows * (lora + 4 * shape.layers * queryWidth(shape) * step.context),
  };
}

/** What any pass reads, however few its rows: layers and head once. */
export const baseReadBytes = (shape: BaseShape): number =>
  shape.weightBytes * (linearWeights(shape) + headWeights(shape));

export function decodeBytes(shape: BaseShape, step: DecodeStep): number {
  const keysAndValues = step.rows * step.context * 2 * shape.layers * keyValueWidth(shape) * FLOAT_BYTES;
  return baseReadBytes(shape) + keysAndValues + step.adapters * step.rank * adaptedWidth(shape) * FLOAT_BYTES;
}

/** The least seconds that so much arithmetic takes. */
export const leastArithmetic = ({ base, other }: Work, peaks: Peaks): number =>
  base / peaks.baseFlops + other / peaks.flops;

/** The least seconds that so much work takes. */
export const leastSeconds = (work: Work, bytes: number, peaks: Peaks): number =>
  Math.max(leastArithmetic(work, peaks), bytes / peaks.bytes);

/** Most FLOP/s of a linear layer whose weights come from memory once per call. */
export function linearPeak(rows: number, weightBytes: number, peaks: Peaks): number {
  const flopsPerByte = (2 * rows) / weightBytes;
  return Math.min(peaks.baseFlops, flopsPerByte * peaks.bytes);
}
