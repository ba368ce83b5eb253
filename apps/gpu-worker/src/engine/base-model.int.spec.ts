import { createHash } from 'node:crypto';
import { readFile } from 'node:fs/promises';
import { join, resolve } from 'node:path';
import { newId } from '#hotbed/contracts';
import { TINY_BASE, openTinyBase } from '#hotbed/fold/testing';
import { baseModelLoaded } from './base-model';

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
