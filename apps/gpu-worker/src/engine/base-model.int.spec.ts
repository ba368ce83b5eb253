import { createHash } from 'node:crypto';
import { readFile } from 'node:fs/promises';
import { join, resolve } from 'node:path';
import { newId } from '#hotbed/contracts';
import { DEFAULT_ENGINE_OPTIONS, NUMERICS_IDS } from '#hotbed/engine';
import { TINY_BASE, openTinyBase } from '#hotbed/fold/testing';
import { baseModelLoaded, loadBaseModelToVerify } from './base-model';

const SEEDLING = resolve(__dirname, '../../../../models/seedling');

describe('what a worker says of its base', () => {
  it('names the tokenizer by the content of its file', async () => {
    const engine = await openTinyBase();
    const digest = createHash('sha256').update(await readFile(join(SEEDLING, 'tokenizer.json')));
    const said = await baseModelLoaded(newId(), SEEDLING, engine);
    expect(said).toMatchObject({ name: 'seedling', tokenizerDigest: digest.digest('hex') });
    await engine.dispose();
  });

  it('names none where the folder has no tokenizer', async () => {
    const engine = await openTinyBase();
    expect(await baseModelLoaded(newId(), TINY_BASE, engine)).not.toHaveProperty('tokenizerDigest');
    await engine.dispose();
  });
});

describe('a base to verify with', () => {
  const settings = { ...DEFAULT_ENGINE_OPTIONS, modelFolder: SEEDLING, threads: 1, kvCacheMiB: 8 };

  it.each(NUMERICS_IDS)('computes %s, the contract of the history, whatever the settings name', async (numericsId) => {
    for (const numerics of NUMERICS_IDS) {
      const engine = await loadBaseModelToVerify({ ...settings, numerics }, numericsId);
      expect(engine.info().numericsId).toBe(numericsId);
      await engine.dispose();
    }
  });

  it('keeps to a kernel path that the settings name', async () => {
    const engine = await loadBaseModelToVerify({ ...settings, kernels: 'scalar' }, 'bf16-1');
    expect(engine.info()).toMatchObject({ numericsId: 'bf16-1', kernels: 'scalar' });
    await engine.dispose();
  });

  it('refuses a contract that it does not know', async () => {
    await expect(loadBaseModelToVerify(settings, 'f32-9')).rejects.toMatchObject({
      code: 'numerics_mismatch',
      message: expect.stringContaining('f32-9') as string,
    });
  });
});
