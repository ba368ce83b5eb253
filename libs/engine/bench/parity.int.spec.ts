import { benchParity, isExact, parityOptions } from './parity';

describe('bench:parity', () => {
  it('finds the log-probs of drawn tokens equal to the trainer’s, to the bit, under every numerics id', async () => {
    const report = await benchParity(
      parityOptions(['--quick', '--numerics', 'f32-1,bf16-1', '--tokens', '8000', '--large-tokens', '2000']),
    );
    expect(report.leftOut).toEqual([]);
    expect(report.tiny).toMatchObject({ differing: 0, maxDifference: 0 });
    expect(report.large).toMatchObject({ differing: 0, maxDifference: 0 });
    expect(report.tiny.tokens).toBeGreaterThanOrEqual(8000);
    expect(report.large.tokens).toBeGreaterThanOrEqual(2000);
    expect(isExact(report)).toBe(true);
    expect(Object.keys(report.paths)).toEqual(['f32-1', 'bf16-1']);
  }, 60_000);

  it('says what the time left out, and is not exact without a token', async () => {
    const report = await benchParity(parityOptions(['--quick', '--tokens', '1000000000', '--budget-s', '1']));
    expect(report.leftOut[0]).toContain('of 1000000000 tokens');
    expect(report.large.tokens).toBe(0);
    expect(isExact(report)).toBe(false);
  }, 60_000);
});
