import { benchEngine, engineOptions } from './engine';
import { engineText } from './engine-text';
import { allOffered } from './numerics';

describe('bench:engine --quick', () => {
  it('measures every part and reports it under the documented names', async () => {
    const report = await benchEngine(engineOptions(['--quick', '--numerics', 'f32-1']));
    expect(report.leftOut).toEqual([]);
    expect(Object.keys(report).slice(0, 6)).toEqual(['machine', 'linear', 'decode', 'training', 'grouped', 'adapter']);
    expect(Object.keys(report.machine)).toEqual(['fmaGflops', 'bf16Gflops', 'readGBs']);
    expect(report.linear).toHaveLength(10);
    for (const row of report.linear) {
      expect(row).toMatchObject({ numerics: 'f32-1', gflops: expect.any(Number), ofPeak: expect.any(Number) });
    }
    expect(report.decode.map(({ rows, adapters }) => [rows, adapters])).toEqual([
      [1, 1],
      [8, 1],
      [8, 8],
    ]);
    expect(report.training.map(({ adapters, rank }) => [adapters, rank])).toEqual([
      [1, 8],
      [4, 8],
    ]);
    expect(report.training.map(({ ofOneAdapter }) => ofOneAdapter)).toEqual([null, expect.any(Number)]);
    expect(Object.keys(report.partSeconds)).toEqual(['linear', 'decode', 'training', 'grouped', 'adapter']);
    for (const row of [...report.decode, ...report.training]) {
      expect(row.tokensPerS).toBeGreaterThan(0);
      expect(row.ofCeiling).toBeGreaterThan(0);
    }
    expect(report.grouped?.ratio).toBeGreaterThan(0);
    expect(report.grouped?.ideal).toBeGreaterThan(1);
    const times = ['createMs', 'firstTokenMs', 'publishMs', 'restoreMs', 'bytesByFormula'] as const;
    for (const name of times) expect(report.adapter?.[name]).toBeGreaterThan(0);
    expect(JSON.parse(JSON.stringify(report))).toEqual(report);
    expect(engineText(report)).toMatch(/ceilings:[^]*of one adapter\n/);
  }, 60_000);

  it('measures every numerics id that the machine offers beside the others', async () => {
    const report = await benchEngine(engineOptions(['--quick', '--only', 'linear,decode,training', '--rounds', '1']));
    const offered = await allOffered();
    for (const rows of [report.linear, report.decode, report.training]) {
      expect([...new Set(rows.map(({ numerics }) => numerics))]).toEqual(offered);
      expect(rows.length % offered.length).toBe(0);
    }
    expect(Object.keys(report.kernels)).toEqual(offered);
  }, 60_000);

  it('refuses a numerics id that does not exist', async () => {
    await expect(benchEngine(engineOptions(['--quick', '--numerics', 'f32-1,f16']))).rejects.toThrow('--numerics');
  });

  it('refuses a part that does not exist', async () => {
    await expect(benchEngine(engineOptions(['--quick', '--only', 'speed']))).rejects.toThrow('--only');
  });
});
