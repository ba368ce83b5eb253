import {
  adaptedWidth,
  adapterBytes,
  decodeBytes,
  decodeWork,
  flopsOf,
  forwardWork,
  headWeights,
  leastSeconds,
  linearPeak,
  linearWeights,
  trainingWork,
} from './ceilings';
import type { BaseShape } from './speed-model';
import { TINY } from './tiny-shape';

const P = 2 * (12 + 6 + 6 + 12 + 15 + 15 + 15);
const S = 2 * (7 + 5 + 5 + 7 + 8 + 8 + 8);

describe('ceilings by formula', () => {
  it('count weights and adapted widths of all layers', () => {
    expect(linearWeights(TINY)).toBe(P);
    expect(headWeights(TINY)).toBe(21);
    expect(adaptedWidth(TINY)).toBe(S);
    expect(adapterBytes(TINY, 4)).toBe(16 * 4 * S);
  });

  it('give SmolLM2-135M the sizes that it is known for', () => {
    const smollm: BaseShape = {
      hidden: 576,
      intermediate: 1536,
      layers: 30,
      heads: 9,
      keyValueHeads: 3,
      headDim: 64,
      vocabulary: 49152,
      weightBytes: 2,
    };
    const norms = 61 * 576;
    expect(linearWeights(smollm) + headWeights(smollm) + norms).toBe(134_515_008);
  });

  it('training of a whole sequence is 4P + 4Vd + 6rS + 7 L qd (T + 1) per token', () => {
    const T = 9;
    const perToken = 4 * P + 4 * 21 + 6 * 4 * S + 7 * 2 * 4 * (T + 1);
    expect(flopsOf(trainingWork(TINY, 4, { shared: 0, branches: 1, branchRows: T }))).toBe(T * perToken);
  });

  it('shared rows count once, see only themselves and carry no head', () => {
    const rows = 5 + 3 * 2;
    const positions = 15 + 3 * (6 + 7);
    const datum = { shared: 5, branches: 3, branchRows: 2 };
    const other = rows * 6 * 4 * S + 14 * 2 * 4 * positions;
    expect(trainingWork(TINY, 4, datum)).toEqual({ base: rows * 4 * P + 3 * 2 * 4 * 21, other });
    expect(trainingWork(TINY, 4, { ...datum, lossRows: 1 })).toEqual({ base: rows * 4 * P + 3 * 4 * 21, other });
  });

  it('a prefill sees what stands before it and needs the head for few rows', () => {
    expect(forwardWork(TINY, 4, { rows: 3, from: 10, headRows: 1 })).toEqual({
      base: 3 * 2 * P + 2 * 21,
      other: 3 * 2 * 4 * S + 4 * 2 * 4 * (11 + 12 + 13),
    });
  });

  it('a decode step reads weights once, keys and values per row, A and B per distinct adapter', () => {
    const step = { rows: 3, context: 10, adapters: 2, rank: 4 };
    expect(decodeBytes(TINY, step)).toBe(2 * (P + 21) + 3 * 10 * 2 * 2 * 2 * 4 + 2 * 4 * S * 4);
    expect(decodeWork(TINY, step)).toEqual({ base: 3 * 2 * (P + 21), other: 3 * (2 * 4 * S + 4 * 2 * 4 * 10) });
  });

  it('the slower of arithmetic and reading decides; the base has a peak of its own', () => {
    const work = { base: 80, other: 20 };
    expect(leastSeconds(work, 10, { flops: 50, baseFlops: 50, bytes: 1 })).toBe(10);
    expect(leastSeconds(work, 10, { flops: 5, baseFlops: 5, bytes: 1 })).toBe(20);
    expect(leastSeconds(work, 10, { flops: 5, baseFlops: 10, bytes: 1 })).toBe(12);
    expect(linearPeak(1, 2, { flops: 500, baseFlops: 1000, bytes: 10 })).toBe(10);
    expect(linearPeak(512, 2, { flops: 500, baseFlops: 1000, bytes: 10 })).toBe(1000);
  });
});
