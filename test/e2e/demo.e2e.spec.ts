/** `hotbed demo`: the main job on real input, and its proofs. Rewards are judged only with the default steps. */
import { aDataFolder, removeDataFolder } from '../support/data-folder';
import { runHotbed } from '../support/hotbed-command';

jest.setTimeout(300_000);

const dataDir = aDataFolder();
afterAll(() => removeDataFolder(dataDir));

interface DemoDocument {
  tenants: { name: string; rewardStart: number; rewardEnd: number; versions: number; digest: string }[];
  commonPrompt: { prompt: string; answers: Record<string, string> };
  proofs: Record<string, boolean>;
  seconds: number;
}

describe('the demo with two tenants and four steps', () => {
  it('ends with 0 and one JSON document in which every proof holds', async () => {
    const { code, stdout, stderr } = await runHotbed(
      ['demo', '--tenants', '2', '--steps', '4', '--json'],
      { HOTBED_DATA_DIR: dataDir },
      280_000,
    );
    expect({ code, stderr }).toEqual({ code: 0, stderr: expect.any(String) });
    const report = JSON.parse(stdout) as DemoDocument;

    expect(report.tenants.map((tenant) => tenant.name)).toEqual(['team-copy', 'team-reverse']);
    for (const { rewardStart, rewardEnd, versions, digest } of report.tenants) {
      for (const reward of [rewardStart, rewardEnd]) {
        expect(reward).toBeGreaterThanOrEqual(0);
        expect(reward).toBeLessThanOrEqual(1);
      }
      expect(rewardStart).toBeLessThanOrEqual(0.25);
      expect(versions).toBeGreaterThanOrEqual(1);
      expect(digest).toMatch(/^[0-9a-f]{64}$/);
    }
    expect(new Set(report.tenants.map((tenant) => tenant.digest)).size).toBe(2);
    expect(report.commonPrompt.prompt).toBe('hotbed>');
    expect(Object.keys(report.commonPrompt.answers)).toEqual(['team-copy', 'team-reverse']);
    expect(report.proofs).toEqual({
      aloneEqualsTogether: true,
      versionRederived: true,
      chainVerified: true,
      resolveOverNats: true,
      lineage: true,
    });
    expect(report.seconds).toBeGreaterThan(0);
    expect(stderr).not.toContain('FAILED');
  });
});
