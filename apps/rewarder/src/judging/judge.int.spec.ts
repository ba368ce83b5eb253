import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { Completion } from '#hotbed/verifiers';
import { Judge } from './judge';

let folder: string;
let judge: Judge;

beforeEach(async () => {
  folder = await mkdtemp(join(tmpdir(), 'hotbed-verifiers-'));
  judge = new Judge(folder);
});

afterEach(async () => {
  await judge.close();
  await rm(folder, { recursive: true });
});

const completions: Completion[] = ['tac', 'cat'].map((completion) => ({
  prompt: 'cat>',
  completion,
  answer: 'tac',
  metadata: {},
}));

const verifier = async (name: string, source: string): Promise<string> => {
  const path = join(folder, `${name}.mjs`);
  await writeFile(path, source);
  return path;
};

describe('an own verifier', () => {
  const lengthOf = `export default ({ completion, answer, config }) => ({
    reward: completion === answer ? config.right : completion.length / 10,
    valid: true,
  });`;

  it('is found by name in the folder, or by path', async () => {
    const path = await verifier('length', lengthOf);
    const expected = [
      { reward: 5, valid: true },
      { reward: 0.3, valid: true },
    ];
    const byName = await judge.judge({ verifier: 'length', config: { right: 5 } }, completions);
    expect(byName.verdicts).toEqual(expected);
    const byPath = await judge.judge({ verifier: 'file', config: { path, right: 5 } }, completions);
    expect(byPath.verdicts).toEqual(expected);
  });

  it('given by path lies in the folder of the operator, and is refused where there is none', async () => {
    const elsewhere = await mkdtemp(join(tmpdir(), 'hotbed-elsewhere-'));
    try {
      const path = join(elsewhere, 'one.mjs');
      await writeFile(path, 'export default () => 1;');
      const reward = { verifier: 'file', config: { path } };
      await expect(judge.judge(reward, completions)).rejects.toMatchObject({
        code: 'verifier_not_usable',
        message: expect.stringContaining('HOTBED_VERIFIER_DIR') as string,
      });
      const without = new Judge(null);
      await expect(without.judge(reward, completions)).rejects.toMatchObject({ code: 'verifier_not_usable' });
      await without.close();
    } finally {
      await rm(elsewhere, { recursive: true });
    }
  });

  it('may give plain numbers, and may be async', async () => {
    await verifier('plain', `export default async ({ completion }) => completion.length;`);
    const { verdicts } = await judge.judge({ verifier: 'plain', config: {} }, completions);
    expect(verdicts).toEqual([
      { reward: 3, valid: true },
      { reward: 3, valid: true },
    ]);
  });

  it('is known by its content: an edited file gives another digest and its own rewards', async () => {
    await verifier('edited', `export default () => 1;`);
    const reward = { verifier: 'edited', config: {} };
    const before = await judge.judge(reward, completions);
    expect(await judge.judge(reward, completions)).toEqual(before);
    await verifier('edited', `export default () => 2;`);
    const after = await judge.judge(reward, completions);
    expect(after.verdicts.map((verdict) => verdict.reward)).toEqual([2, 2]);
    expect(after.configDigest).not.toBe(before.configDigest);
  });

  it.each([
    ['throws', `export default () => { throw new Error('boom'); };`, 'verifier_failed', 'boom'],
    ['exports nothing', `export const judge = 1;`, 'verifier_failed', 'no function as its default export'],
    ['is no JavaScript', `export default (`, 'verifier_failed', ''],
    ['gives nonsense', `export default () => ({ reward: 'much' });`, 'verifier_failed', 'expected { reward'],
    ['gives NaN', `export default () => NaN;`, 'verifier_failed', 'expected { reward'],
    ['ends its thread', `export default () => process.exit(0);`, 'verifier_failed', 'ended its thread'],
    [
      'takes all memory',
      `export default () => { const a = []; for (;;) a.push(new Array(1e5).fill(1)); };`,
      'verifier_failed',
      '',
    ],
  ])(
    'that %s gives an error that says so, and the next one works',
    async (_, source, code, message) => {
      await verifier('bad', source);
      await expect(judge.judge({ verifier: 'bad', config: {} }, completions)).rejects.toMatchObject({
        code,
        message: expect.stringContaining(message) as string,
      });
      await verifier('bad', `export default () => 1;`);
      expect((await judge.judge({ verifier: 'bad', config: {} }, completions)).verdicts).toHaveLength(2);
    },
    30_000,
  );

  it('that never ends is ended after its time', async () => {
    await verifier('endless', `export default () => { for (;;); };`);
    const impatient = new Judge(folder, 300);
    await expect(impatient.judge({ verifier: 'endless', config: {} }, completions)).rejects.toMatchObject({
      code: 'verifier_timeout',
    });
    await impatient.close();
  });
});

describe('digests of settings', () => {
  it('follow verifier and configuration, not the order of its fields', async () => {
    const digest = async (config: Record<string, boolean>) =>
      (await judge.judge({ verifier: 'exact_match', config }, completions)).configDigest;
    expect(await digest({ trim: true, caseSensitive: true })).toBe(await digest({ caseSensitive: true, trim: true }));
    expect(await digest({ trim: true })).not.toBe(await digest({ trim: false }));
  });
});
