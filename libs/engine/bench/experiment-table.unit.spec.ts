import { steadyStateSeconds, timesOf } from './experiment-table';
import { haveEqualBytes, ratioOf } from './throughput';
import { drawWaits, longestWaits } from './tool-waits';

const result = (finishS: number, ...stepSeconds: number[]) => ({
  startMs: 1000,
  finishMs: 1000 + 1000 * finishS,
  stepSeconds,
  reward: 0,
});

describe('the experiment table', () => {
  it('takes makespan, mean and first completion from submission, and the spread of those that began together', () => {
    const results = [result(10, 4, 6), result(11, 5, 6), result(20, 5, 5), result(22, 5, 6)];
    expect(timesOf(results, 1000, 2)).toEqual({ makespanS: 22, meanS: 15.75, firstS: 10, stepS: 5.25, spread: 1.1 });
    expect(timesOf(results, 1000, 1).spread).toBe(1);
  });

  it('bounds the makespan by the machine or by the longest path, whichever is longer', () => {
    const run = { experiments: 8, steps: 10 };
    expect(steadyStateSeconds(run, 1, { machineS: 1, pathS: 0.5, waitsOfAllSteps: 20 })).toBe(200);
    expect(steadyStateSeconds(run, 8, { machineS: 4, pathS: 1, waitsOfAllSteps: 20 })).toBe(40);
    expect(steadyStateSeconds(run, 8, { machineS: 2, pathS: 1, waitsOfAllSteps: 20 })).toBe(30);
  });

  it('compares N = 1 with the largest N of the same environment', () => {
    const rows = [
      { env: 'plain', n: 1, makespanS: 30 },
      { env: 'plain', n: 8, makespanS: 20 },
      { env: 'plain', n: 2, makespanS: 25 },
      { env: 'agentic', n: 8, makespanS: 10 },
    ] as const;
    expect(ratioOf(rows, 'plain')).toBe(1.5);
    expect(ratioOf(rows, 'agentic')).toBeNull();
  });

  it('finds one adapter with other bytes', () => {
    const row = (env: 'plain' | 'agentic', digests: string[], rewardDigests: string[]) => ({
      env,
      digests,
      rewardDigests,
    });
    const same = row('plain', ['a', 'b'], ['c', 'd']);
    expect(haveEqualBytes([same, same, row('agentic', ['x', 'y'], ['z', 'w'])])).toBe(true);
    expect(haveEqualBytes([same, row('plain', ['a', 'B'], ['c', 'd'])])).toBe(false);
    expect(haveEqualBytes([same, row('plain', ['a', 'b'], ['c', 'D'])])).toBe(false);
  });
});

describe('waits of tool calls', () => {
  const shape = { steps: 200, rollouts: 4, calls: 2 };
  const waits = drawWaits({ medianS: 0.4, sigma: 0.6 }, 7, shape);
  const all = (experiment: number) =>
    Array.from({ length: shape.steps }, (_, step) =>
      [0, 1, 2, 3].flatMap((rollout) => [0, 1].map((turn) => waits({ experiment, step, rollout, turn }))),
    ).flat();

  it('are log-normal around their median and drawn from the seed', () => {
    const drawn = all(0).sort((a, b) => a - b);
    expect(drawn[drawn.length / 2]).toBeGreaterThan(0.36);
    expect(drawn[drawn.length / 2]).toBeLessThan(0.44);
    const logs = drawn.map((wait) => Math.log(wait / 0.4));
    const deviation = Math.sqrt(logs.reduce((sum, log) => sum + log * log, 0) / logs.length);
    expect(deviation).toBeGreaterThan(0.55);
    expect(deviation).toBeLessThan(0.65);
    expect(drawWaits({ medianS: 0.4, sigma: 0.6 }, 7, shape)({ experiment: 3, step: 1, rollout: 2, turn: 1 })).toBe(
      waits({ experiment: 3, step: 1, rollout: 2, turn: 1 }),
    );
  });

  it('are the same for every experiment, in another order of steps', () => {
    expect(all(3)).not.toEqual(all(0));
    expect([...all(3)].sort()).toEqual([...all(0)].sort());
  });

  it('sum over steps to what the slowest rollout waits', () => {
    const table = [
      [1, 2],
      [3, 5],
    ];
    const given = ({ step, rollout }: { step: number; rollout: number }) => table[step]?.[rollout] ?? 0;
    expect(longestWaits(given, { steps: 2, rollouts: 2, calls: 1 })).toBe(7);
    expect(longestWaits(given, { steps: 2, rollouts: 2, calls: 0 })).toBe(0);
  });
});
