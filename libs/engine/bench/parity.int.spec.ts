import { offeredPaths } from './offered-paths';
import { benchParity, isExact, parityOptions } from './parity';

describe('bench:parity', () => {
  it('finds the log-probs of drawn tokens equal to the trainer’s, to the bit, on every kernel path', async () => {
    const report = await benchParity(parityOptions(['--quick', '--tokens', '6000', '--large-tokens', '1000']));
    expect(report.leftOut).toEqual([]);
    expect(report.tiny).toMatchObject({ differing: 0, maxDifference: 0 });
    expect(report.large).toMatchObject({ differing: 0, maxDifference: 0 });
    expect(report.tiny.tokens).toBeGreaterThanOrEqual(6000);
    expect(report.large.tokens).toBeGreaterThanOrEqual(1000);
    expect(isExact(report)).toBe(true);
    expect(Object.keys(report.paths).length).toBeLessThanOrEqual((await offeredPaths()).length);
  }, 60_000);

  it('says what the time left out, and is not exact without a token', async () => {
    const report = await benchParity(parityOptions(['--quick', '--tokens', '1000000000', '--budget-s', '1']));
    expect(report.leftOut[0]).toContain('of 1000000000 tokens');
    expect(report.large.tokens).toBe(0);
    expect(isExact(report)).toBe(false);
  }, 60_000);
});
