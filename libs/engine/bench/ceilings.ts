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
 * 5. A step takes at least the longer of its FLOPs at the peak and its bytes at the read bandwidth.
 */
export interface Peaks {
  /** FLOP/s of the unit that the numerics id computes with. */
  flops: number;
  /** Bytes/s read from memory. */
  bytes: number;
}

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
}

/** Forward and backward of one datum. */
export function trainingFlops(shape: BaseShape, rank: number, datum: DatumRows): number {
  const rows = datum.shared + datum.branches * datum.branchRows;
  const positions = attended(0, datum.shared) + datum.branches * attended(datum.shared, datum.branchRows);
  return (
    rows * (4 * linearWeights(shape) + 6 * rank * adaptedWidth(shape)) +
    14 * shape.layers * queryWidth(shape) * positions +
    datum.branches * datum.branchRows * 4 * headWeights(shape)
  );
}

/** One decode step: `rows` sequences that attend to `context` positions each, of `adapters` distinct adapters. */
export interface DecodeStep {
  rows: number;
  context: number;
  adapters: number;
  rank: number;
}

export function decodeFlops(shape: BaseShape, step: DecodeStep): number {
  const linear = 2 * (linearWeights(shape) + headWeights(shape));
  const lora = step.adapters === 0 ? 0 : 2 * step.rank * adaptedWidth(shape);
  return step.rows * (linear + lora + 4 * shape.layers * queryWidth(shape) * step.context);
}

export function decodeBytes(shape: BaseShape, step: DecodeStep): number {
  const weights = shape.weightBytes * (linearWeights(shape) + headWeights(shape));
  const keysAndValues = step.rows * step.context * 2 * shape.layers * keyValueWidth(shape) * FLOAT_BYTES;
  return weights + keysAndValues + step.adapters * step.rank * adaptedWidth(shape) * FLOAT_BYTES;
}

/** The least seconds that so much work takes. */
export const leastSeconds = (flops: number, bytes: number, peaks: Peaks): number =>
  Math.max(flops / peaks.flops, bytes / peaks.bytes);

/** Most FLOP/s of a linear layer whose weights come from memory once per call. */
export function linearPeak(rows: number, weightBytes: number, peaks: Peaks): number {
  const flopsPerByte = (2 * rows) / weightBytes;
  return Math.min(peaks.flops, flopsPerByte * peaks.bytes);
}
