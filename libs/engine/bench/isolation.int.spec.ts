import { isIsolated, measureIsolation } from './isolation-trials';
import { offeredPaths } from './offered-paths';

describe('isolation of adapters that share an engine', () => {
  it('no bit of any result depends on the neighbours, and a reordered chain would be noticed', async () => {
    const report = await measureIsolation(12, 77);
    expect(report).toMatchObject({ trials: 12, differingBits: 0, mutationDetected: true });
    expect(isIsolated(report)).toBe(true);
    const offered = await offeredPaths();
    expect(Object.keys(report.paths).sort()).toEqual([...offered].sort());
  }, 120_000);
});
