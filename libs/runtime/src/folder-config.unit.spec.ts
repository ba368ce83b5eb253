import { existsSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { blobConfigShape, textConfigShape, toBlobFolder, toTextConfig } from './folder-config';
import { ConfigError, loadConfig } from './load-config';

const blobFolder = (env: NodeJS.ProcessEnv) =>
  loadConfig(blobConfigShape, (values) => ({ blobs: toBlobFolder(values) }), env).blobs;
const text = (env: NodeJS.ProcessEnv) => loadConfig(textConfigShape, toTextConfig, env);

describe('the folder of blobs', () => {
  it('is the named one, else below the data folder, and is not made by asking', () => {
    const dataDir = join(__dirname, 'no-such-data-folder');
    expect(blobFolder({ HOTBED_BLOB_DIR: 'some/blobs', HOTBED_DATA_DIR: dataDir })).toBe(resolve('some/blobs'));
    expect(blobFolder({ HOTBED_DATA_DIR: dataDir })).toBe(join(dataDir, 'blobs'));
    expect(existsSync(dataDir)).toBe(false);
    expect(blobFolder({})).toBe(resolve('.hotbed', 'blobs'));
  });
});

describe('the folders of text', () => {
  it('are absolute; own verifiers may be absent, the base may not', () => {
    const env = { HOTBED_BASE_MODEL: 'models/seedling' };
    expect(text(env)).toEqual({ modelFolder: resolve('models/seedling'), verifierFolder: null });
    expect(text({ ...env, HOTBED_VERIFIER_DIR: 'own' }).verifierFolder).toBe(resolve('own'));
    expect(() => text({})).toThrow(ConfigError);
  });
});
