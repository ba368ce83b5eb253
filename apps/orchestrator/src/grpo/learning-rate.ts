import type { GrpoPayload } from '#hotbed/contracts';

/**
 * Learning rate of one step of a run, fp64. linear: learningRate * (1 - (1 - finalFraction) * step / (stepsPerRun - 1)),
 * so the first step has learningRate and the last learningRate * finalFraction.
 */
export function learningRateAt(algorithm: GrpoPayload, step: number): number {
  const { schedule, stepsPerRun } = algorithm;
  const { learningRate } = algorithm.adam;
  if (schedule.kind === 'constant' || stepsPerRun === 1) return learningRate;
  return learningRate * (1 - ((1 - schedule.finalFraction) * step) / (stepsPerRun - 1));
}
