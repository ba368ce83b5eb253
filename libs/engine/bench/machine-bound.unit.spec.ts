import { adaptedWidth, headWeights, linearWeights } from './ceilings';
import { type StepSizes, perfectSeconds, samplingPhases, trainingPhase } from './machine-bound';
import { TINY } from './tiny-shape';

const P = linearWeights(TINY);
const V = headWeights(TINY);
const S = adaptedWidth(TINY);
const RANK = 4;
/** Keys and values of a position; FLOPs of attending to one. */
const KV = 2 * 2 * 2 * 4;
const AT = 4 * 2 * 4;
const PLAIN: StepSizes = { rows: 3, promptTokens: 5, turns: 1, tokensPerTurn: 4, toolTokens: 2 };
const TABLE = { shape: TINY, rank: RANK, experiments: 8, steps: 10, waitsOfAllSteps: 0 };

describe('what the machine allows at best', () => {
  it('a prompt is read once for its group; every later token is a step that reads the weights', () => {
    const [prompt, decode] = samplingPhases(TINY, RANK, PLAIN, 2);
    expect(prompt).toEqual({
      work: { base: 2 * (5 * 2 * P + 2 * V), other: 2 * (5 * 2 * RANK * S + AT * 15) },
      bytes: 2 * (P + V) + 2 * RANK * S * 4,
    });
    // Positions 6, 7 and 8 of six rows, of two adapters.
    expect(decode?.work).toEqual({ base: 3 * 6 * 2 * (P + V), other: 3 * 6 * 2 * RANK * S + 6 * AT * (6 + 7 + 8) });
    expect(decode?.bytes).toBe(3 * (2 * (P + V) + 2 * RANK * S * 4) + 6 * KV * (6 + 7 + 8));
  });

  it('a further turn goes on behind kept keys and values: the tool tokens and the token drawn last', () => {
    const phases = samplingPhases(TINY, RANK, { ...PLAIN, turns: 2, tokensPerTurn: 2 }, 1);
    expect(phases).toHaveLength(4);
    // Prompt 5, one decode step: six positions are known when the tool's two tokens come.
    expect(phases[2]).toEqual({
      work: { base: 3 * (3 * 2 * P + 2 * V), other: 3 * (3 * 2 * RANK * S + AT * (7 + 8 + 9)) },
      bytes: 2 * (P + V) + RANK * S * 4 + 3 * 6 * KV,
    });
  });

  it('training reads the weights twice whatever N, and needs the head for sampled tokens only', () => {
    const two = trainingPhase(TINY, RANK, { ...PLAIN, turns: 2 }, 2);
    const rows = 4 + 3 * 10;
    expect(two.work.base).toBe(2 * (rows * 4 * P + 3 * 8 * 4 * V));
    expect(two.bytes).toBe(4 * (P + V) + 2 * 16 * RANK * S);
  });

  it('without an end to arithmetic, only reading is shared: N experiments gain what their weights are read less', () => {
    const peaks = { flops: Infinity, baseFlops: Infinity, bytes: 1 };
    const of = { ...TABLE, sizes: PLAIN };
    const bytes = (n: number) =>
      [...samplingPhases(TINY, RANK, PLAIN, n), trainingPhase(TINY, RANK, PLAIN, n)].reduce(
        (all, phase) => all + phase.bytes,
        0,
      );
    expect(perfectSeconds(of, 1, peaks)).toBeCloseTo(8 * 10 * bytes(1), 6);
    expect(perfectSeconds(of, 8, peaks)).toBeCloseTo(10 * bytes(8), 6);
  });

  it('without an end to reading, N changes nothing', () => {
    const peaks = { flops: 100, baseFlops: 200, bytes: Infinity };
    const of = { ...TABLE, sizes: PLAIN };
    expect(perfectSeconds(of, 8, peaks)).toBeCloseTo(perfectSeconds(of, 1, peaks), 6);
  });

  it('waits hide behind other experiments, never within one', () => {
    const fast = { flops: Infinity, baseFlops: Infinity, bytes: Infinity };
    const of = { ...TABLE, sizes: PLAIN, waitsOfAllSteps: 20 };
    expect(perfectSeconds(of, 1, fast)).toBe(160);
    expect(perfectSeconds(of, 8, fast)).toBe(20);
  });
});
