import { join, resolve } from 'node:path';
import { loadConfig } from '#hotbed/runtime';
import { z } from 'zod';

/** The repository's root, from the compiled file's place. */
export const ROOT = join(__dirname, '..', '..', '..', '..', '..');

/** Where a platform on this machine keeps what the hotbed command looks up again. */
export interface PlatformFiles {
  dataDir: string;
  blobs: string;
  address: string;
  apiKey: string;
  databaseUrl: string;
  brokerUsers: string;
}

/** @param blobDir where blobs lie elsewhere than in the data folder */
export function platformFiles(dataDir: string, blobDir?: string): PlatformFiles {
  const secret = (name: string) => join(dataDir, 'secrets', name);
  return {
    dataDir,
    blobs: blobDir === undefined ? join(dataDir, 'blobs') : resolve(blobDir),
    address: join(dataDir, 'address'),
    apiKey: secret('api-key'),
    databaseUrl: secret('database-url'),
    brokerUsers: secret('broker-users.json'),
  };
}

/** Those of HOTBED_DATA_DIR (default `.hotbed` in the repository) and HOTBED_BLOB_DIR. @throws ConfigError */
export function platformFilesHere(env: NodeJS.ProcessEnv = process.env): PlatformFiles {
  return loadConfig(
    { HOTBED_DATA_DIR: z.string().optional(), HOTBED_BLOB_DIR: z.string().optional() },
    (values) => platformFiles(resolve(values.HOTBED_DATA_DIR ?? join(ROOT, '.hotbed')), values.HOTBED_BLOB_DIR),
    env,
  );
}
