import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { openModelFolder } from './model-folder';

const SEEDLING = resolve(__dirname, '../../../models/seedling');

describe('the seedling', () => {
  it('opens with its end of sequence and context length', async () => {
    const folder = await openModelFolder(SEEDLING);
    expect(folder.name).toBe('seedling');
    expect(folder.eosTokenIds).toEqual([2]);
    expect(folder.contextLength).toBeGreaterThan(16);
  });

  it('encodes a prompt with one BOS and decodes without special tokens', async () => {
    const { tokenizer } = await openModelFolder(SEEDLING);
    const ids = tokenizer.encode('abz>');
    expect([...ids]).toEqual([1, 4, 5, 29, 3]);
    expect([...tokenizer.encode('<bos>abz>')]).toEqual([...ids]);
    expect(tokenizer.decode([30, 4, 5, 2])).toBe('Aab');
    expect(tokenizer.decode([])).toBe('');
  });
});

describe('a folder that cannot be used', () => {
  let folder: string;
  beforeEach(async () => {
    folder = await mkdtemp(join(tmpdir(), 'hotbed-model-'));
  });
  afterEach(() => rm(folder, { recursive: true }));

  const write = (file: string, text: string) => writeFile(join(folder, file), text);

  it('names a missing file', async () => {
    await expect(openModelFolder(folder)).rejects.toMatchObject({
      code: 'model_folder_invalid',
      fields: [{ path: 'config.json' }],
    });
    await write('config.json', '{}');
    await expect(openModelFolder(folder)).rejects.toMatchObject({ fields: [{ path: 'tokenizer.json' }] });
  });

  it('names a file that is no JSON, or no object', async () => {
    await write('config.json', '{"a":');
    await expect(openModelFolder(folder)).rejects.toThrow('config.json: is no JSON');
    await write('config.json', '[]');
    await expect(openModelFolder(folder)).rejects.toThrow('config.json: expected a JSON object');
  });

  it('names a tokenizer that holds none', async () => {
    await write('config.json', '{}');
    await write('tokenizer.json', '{}');
    await expect(openModelFolder(folder)).rejects.toMatchObject({ fields: [{ path: 'tokenizer.json' }] });
  });

  it('refuses token ids that are none', async () => {
    await write('config.json', '{"eos_token_id": "x", "max_position_embeddings": 16}');
    await write('tokenizer.json', await seedlingTokenizer());
    await expect(openModelFolder(folder)).rejects.toThrow('expected token ids, got "x"');
  });

  it('wants a context length', async () => {
    await write('config.json', '{}');
    await write('tokenizer.json', await seedlingTokenizer());
    await expect(openModelFolder(folder)).rejects.toThrow('max_position_embeddings');
  });
});

describe('OpenRLHF#393: a second BOS after chat template and encoding', () => {
  it.each([
    ['a tokenizer whose post-processor adds BOS', true],
    ['a tokenizer that adds none', false],
  ])('%s: one BOS, token for token', async (_, adds) => {
    const folder = await mkdtemp(join(tmpdir(), 'hotbed-model-'));
    try {
      const json = JSON.parse(await seedlingTokenizer()) as { post_processor: unknown };
      if (!adds) json.post_processor = null;
      await writeFile(join(folder, 'config.json'), '{"bos_token_id": 1, "max_position_embeddings": 16}');
      await writeFile(join(folder, 'tokenizer.json'), JSON.stringify(json));
      const { tokenizer } = await openModelFolder(folder);
      expect([...tokenizer.encode('<bos>abz>')]).toEqual([1, 4, 5, 29, 3]);
      expect([...tokenizer.encode('abz>')]).toEqual(adds ? [1, 4, 5, 29, 3] : [4, 5, 29, 3]);
    } finally {
      await rm(folder, { recursive: true });
    }
  });
});

describe('ends of sequence', () => {
  it('are all that generation_config.json lists', async () => {
    const folder = await mkdtemp(join(tmpdir(), 'hotbed-model-'));
    try {
      await writeFile(join(folder, 'config.json'), '{"eos_token_id": 2, "max_position_embeddings": 16}');
      await writeFile(join(folder, 'generation_config.json'), '{"eos_token_id": [2, 0]}');
      await writeFile(join(folder, 'tokenizer.json'), await seedlingTokenizer());
      expect((await openModelFolder(folder)).eosTokenIds).toEqual([2, 0]);
    } finally {
      await rm(folder, { recursive: true });
    }
  });
});

function seedlingTokenizer(): Promise<string> {
  return readFile(join(SEEDLING, 'tokenizer.json'), 'utf8');
}
