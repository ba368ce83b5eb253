import { Random } from './random';

/**
 * How long tool calls of an agentic rollout take: log-normal, drawn from a seed. Real calls (a search, a test run, a
 * page) take from tenths of a second to many seconds with a long tail, and the rollout computes nothing meanwhile.
 *
 * Every experiment meets the same waits in a different order of steps: experiment e takes in step s what was drawn for
 * step (s + e) mod steps. So experiments do not wait in step with one another, yet all wait equally long in sum, and
 * how far apart they finish says something about the engine and nothing about the luck of the draw.
 */
export interface WaitDistribution {
  medianS: number;
  /** Standard deviation of the logarithm. */
  sigma: number;
}

export type Waits = (call: { experiment: number; step: number; rollout: number; turn: number }) => number;

export const NO_WAITS: Waits = () => 0;

export function drawWaits(
  { medianS, sigma }: WaitDistribution,
  seed: number,
  shape: { steps: number; rollouts: number; calls: number },
): Waits {
  const random = new Random(seed);
  const table = random.list(shape.steps, () =>
    random.list(shape.rollouts, () => random.list(shape.calls, () => medianS * Math.exp(sigma * normal(random)))),
  );
  return ({ experiment, step, rollout, turn }) => table[(step + experiment) % shape.steps]?.[rollout]?.[turn] ?? 0;
}

/** Box and Muller. */
function normal(random: Random): number {
  const radius = Math.sqrt(-2 * Math.log(random.real(2 ** -33, 1)));
  return radius * Math.cos(2 * Math.PI * random.real(0, 1));
}

/** The waits that no schedule can hide: of each step, those of its slowest rollout. */
export function longestWaits(waits: Waits, shape: { steps: number; rollouts: number; calls: number }): number {
  let sum = 0;
  for (let step = 0; step < shape.steps; step++) {
    const ofRollouts = Array.from({ length: shape.rollouts }, (_, rollout) =>
      Array.from({ length: shape.calls }, (_, turn) => waits({ experiment: 0, step, rollout, turn })).reduce(
        (total, wait) => total + wait,
        0,
      ),
    );
    sum += Math.max(0, ...ofRollouts);
  }
  return sum;
}
