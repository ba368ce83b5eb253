import { isIsolated, measureIsolation } from './isolation-trials';
import { NUMERICS_IDS } from '../src/engine.types';
import { offeredPaths } from './offered-paths';

describe('isolation of adapters that share an engine', () => {
  it('no bit of any result depends on the neighbours, and a reordered chain would be noticed', async () => {
    const report = await measureIsolation(16, 77, { numerics: NUMERICS_IDS });
    expect(report).toMatchObject({ trials: 16, differingBits: 0, mutationDetected: true });
    expect(isIsolated(report)).toBe(true);
    const offered = await offeredPaths();
    expect(Object.keys(report.paths)).toEqual(NUMERICS_IDS);
    for (const id of NUMERICS_IDS) expect(Object.keys(report.paths[id] ?? {}).sort()).toEqual([...offered].sort());
  }, 120_000);
});
