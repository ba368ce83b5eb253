import fc from 'fast-check';
import type { GrpoPayload } from '#hotbed/contracts';
import { groupAdvantages } from './advantages';
import { batchOrdinals } from './batch-selection';
import { learningRateAt } from './learning-rate';

const seed = 20261130;
const rewardsOf = fc.array(fc.double({ min: -100, max: 100, noNaN: true }), { minLength: 2, maxLength: 16 });

describe('group advantages', () => {
  it('of one right answer in four are what the formula gives', () => {
    // mean 0.25, population deviation sqrt(3)/4
    const deviation = Math.sqrt(3) / 4 + 1e-6;
    expect([...groupAdvantages([1, 0, 0, 0], 4)]).toEqual(
      [0.75, -0.25, -0.25, -0.25].map((d) => Math.fround(d / deviation / 4)),
    );
  });

  it('are all +0 where every reward is equal', () => {
    fc.assert(
      fc.property(fc.double({ noNaN: true, noDefaultInfinity: true }), fc.integer({ min: 2, max: 64 }), (r, n) => {
        const advantages = groupAdvantages(
          Array.from({ length: n }, () => r),
          n,
        );
        expect([...advantages].every((a) => Object.is(a, 0))).toBe(true);
      }),
      { seed },
    );
  });

  it('rise with the reward', () => {
    fc.assert(
      fc.property(rewardsOf, (rewards) => {
        const advantages = groupAdvantages(rewards, rewards.length);
        rewards.forEach((a, i) =>
          rewards.forEach((b, j) => {
            if (a > b) expect(advantages[i]).toBeGreaterThanOrEqual(advantages[j] ?? NaN);
          }),
        );
      }),
      { seed },
    );
  });

  it('sum to nearly nothing and keep a spread of at most one, over the rollouts of the step', () => {
    fc.assert(
      fc.property(rewardsOf, (rewards) => {
        const advantages = [...groupAdvantages(rewards, 1)];
        expect(Math.abs(advantages.reduce((a, b) => a + b, 0))).toBeLessThan(1e-4 * rewards.length);
        expect(advantages.reduce((a, b) => a + b * b, 0) / rewards.length).toBeLessThanOrEqual(1 + 1e-5);
      }),
      { seed },
    );
  });

  it('are divided by the rollouts of the step', () => {
    const one = groupAdvantages([0, 1, 3], 1);
    const many = groupAdvantages([0, 1, 3], 64); // a power of two divides exactly
    expect([...many]).toEqual([...one].map((a) => a / 64));
  });
});

describe('batch selection', () => {
  const cases = fc.record({
    records: fc.integer({ min: 1, max: 97 }),
    runOrdinal: fc.integer({ min: 0, max: 5 }),
    promptsPerStep: fc.integer({ min: 1, max: 17 }),
    steps: fc.integer({ min: 1, max: 40 }),
  });

  it('uses every record evenly at any moment', () => {
    fc.assert(
      fc.property(cases, ({ records, runOrdinal, promptsPerStep, steps }) => {
        const uses = new Array<number>(records).fill(0);
        for (let step = 0; step < steps; step++) {
          for (const ordinal of batchOrdinals(records, runOrdinal, step, promptsPerStep)) {
            uses[ordinal] = (uses[ordinal] ?? NaN) + 1;
          }
        }
        expect(uses.reduce((a, b) => a + b, 0)).toBe(steps * promptsPerStep);
        expect(Math.max(...uses) - Math.min(...uses)).toBeLessThanOrEqual(1);
      }),
      { seed },
    );
  });

  it('takes another order in another run and another epoch', () => {
    const epoch = (run: number, step: number) => batchOrdinals(50, run, step, 50).join();
    expect(new Set([epoch(0, 0), epoch(0, 1), epoch(1, 0), epoch(1, 1)]).size).toBe(4);
  });

  it('is a function of its arguments, locked by an example', () => {
    expect(batchOrdinals(10, 0, 0, 12)).toEqual([7, 0, 3, 6, 9, 2, 5, 8, 1, 4, 1, 8]);
    expect(batchOrdinals(1, 3, 7, 3)).toEqual([0, 0, 0]);
  });
});

describe('learning rate', () => {
  const algorithm = (schedule: GrpoPayload['schedule'], stepsPerRun: number) =>
    ({ schedule, stepsPerRun, adam: { learningRate: 0.01 } }) as GrpoPayload;

  it('stays where constant', () => {
    expect(learningRateAt(algorithm({ kind: 'constant' }, 10), 9)).toBe(0.01);
  });

  it('falls linearly to the final fraction at the last step', () => {
    const linear = algorithm({ kind: 'linear', finalFraction: 0.5 }, 11);
    expect(learningRateAt(linear, 0)).toBe(0.01);
    expect(learningRateAt(linear, 5)).toBeCloseTo(0.0075, 12);
    expect(learningRateAt(linear, 10)).toBe(0.005);
    expect(learningRateAt(algorithm({ kind: 'linear', finalFraction: 0 }, 1), 0)).toBe(0.01);
  });
});
