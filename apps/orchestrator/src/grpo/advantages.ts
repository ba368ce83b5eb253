/** Keeps the quotient finite where the spread is tiny. */
const EPSILON = 1e-6;

/**
 * Group-normalised advantages of one prompt's completions, in order of sample index.
 *
 * (reward - mean) / (population standard deviation + 1e-6) / rolloutsOfStep, all in fp64 with sums ascending by sample
 * index, rounded once to fp32. All +0 where every reward of the group is equal (==). A function of the rewards and
 * their order by sample index alone: the order in which completions arrived does not enter.
 * @param rewards finite, one per completion; @param rolloutsOfStep completions of the whole step, >= 1
 * @returns f32 [rewards]
 */
export function groupAdvantages(rewards: readonly number[], rolloutsOfStep: number): Float32Array {
  const advantages = new Float32Array(rewards.length);
  if (!hasVariance(rewards)) return advantages;
  const mean = meanOf(rewards);
  let squares = 0;
  for (const reward of rewards) squares += (reward - mean) * (reward - mean);
  const deviation = Math.sqrt(squares / rewards.length);
  rewards.forEach((reward, i) => {
    advantages[i] = (reward - mean) / (deviation + EPSILON) / rolloutsOfStep;
  });
  return advantages;
}

export function hasVariance(rewards: readonly number[]): boolean {
  return rewards.some((reward) => reward !== rewards[0]);
}

/** Sum ascending by index, divided once. @param values non-empty */
export function meanOf(values: readonly number[]): number {
  let sum = 0;
  for (const value of values) sum += value;
  return sum / values.length;
}
