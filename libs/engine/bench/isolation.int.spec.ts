import { isIsolated, measureIsolation } from './isolation-trials';

describe('isolation of adapters that share an engine', () => {
  it('no bit of any result depends on the neighbours, and a reordered chain would be noticed', async () => {
    const report = await measureIsolation(12, 77);
    expect(report).toMatchObject({ trials: 12, differingBits: 0, mutationDetected: true });
    expect(isIsolated(report)).toBe(true);
  }, 120_000);
});
