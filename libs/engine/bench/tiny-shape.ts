import type { BaseShape } from './speed-model';

/** For unit tests. Small enough to count by hand: q 4 x 3, k and v 2 x 3 each, o 3 x 4, gate, up, down 5 x 3 each. */
export const TINY: BaseShape = {
  hidden: 3,
  intermediate: 5,
  layers: 2,
  heads: 2,
  keyValueHeads: 1,
  headDim: 2,
  vocabulary: 7,
  weightBytes: 2,
};
