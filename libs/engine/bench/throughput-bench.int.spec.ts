import { benchThroughput, throughputOptions } from './throughput';
import { throughputText } from './throughput-text';

const QUICK = ['--quick', '--steps', '2', '--n', '1,4', '--experiments', '4', '--wait-median-s', '0.01'];

describe('bench:throughput --quick', () => {
  it('gives both tables under the documented names, with equal bytes in every cell', async () => {
    const report = await benchThroughput(throughputOptions(QUICK));
    expect(report.leftOut).toEqual([]);
    expect(report.rows.map(({ env, n }) => [env, n])).toEqual([
      ['plain', 1],
      ['plain', 4],
      ['agentic', 1],
      ['agentic', 4],
    ]);
    for (const row of report.rows) {
      for (const name of ['makespanS', 'meanS', 'firstS', 'stepS', 'spread', 'boundS', 'machineBoundS'] as const) {
        expect(row[name]).toBeGreaterThan(0);
      }
      expect(row.rewards).toHaveLength(4);
      expect(new Set(row.digests).size).toBe(4);
      expect(new Set(row.rewardDigests).size).toBe(4);
    }
    expect(report.equalBytes).toBe(true);
    expect(report.ratio.plain).toBeGreaterThan(0);
    expect(report.ratio.agentic).toBeGreaterThan(0);
    for (const env of ['plain', 'agentic'] as const) {
      expect(report.bound[env]?.ownPhases).toBeGreaterThan(0);
      expect(report.bound[env]?.machine).toBeGreaterThanOrEqual(1);
    }
    expect(Object.keys(report.machine)).toEqual(['fmaGflops', 'bf16Gflops', 'readGBs']);
    expect(report.coldStartS).toBeGreaterThan(0);
    expect(JSON.parse(JSON.stringify(report))).toEqual(report);
    expect(throughputText(report)).toMatch(
      /bound of own phases[^]*bound of the machine[^]*bytes equal across all N: yes/,
    );
  }, 90_000);

  it('refuses what it cannot measure, by name', async () => {
    const refused = (args: string[]) => benchThroughput(throughputOptions(args));
    await expect(refused(['--env', 'other'])).rejects.toThrow('--env');
    await expect(refused(['--n', '3'])).rejects.toThrow('--n');
    await expect(refused(['--turns', '5'])).rejects.toThrow('--tokens');
    expect(() => throughputOptions(['--group', '8'])).toThrow('--group');
  });
});
