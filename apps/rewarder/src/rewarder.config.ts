import { resolve } from 'node:path';
import { z } from 'zod';
import {
  databaseConfigShape,
  loadConfig,
  natsConfigShape,
  openDataFolder,
  toNatsConfig,
  type NatsConfig,
} from '#hotbed/runtime';

export interface RewarderConfig {
  databaseUrl: string;
  blobFolder: string;
  nats: NatsConfig;
  /** Folder of the base that the workers load: its tokenizer decodes completions. */
  modelFolder: string;
  /** Own verifiers by name; null = none. */
  verifierFolder: string | null;
}

/** @throws ConfigError naming every wrong variable */
export function loadRewarderConfig(env: NodeJS.ProcessEnv): RewarderConfig {
  return loadConfig(
    {
      ...databaseConfigShape,
      ...natsConfigShape,
      HOTBED_BASE_MODEL: z.string().min(1),
      HOTBED_DATA_DIR: z.string().optional(),
      HOTBED_BLOB_DIR: z.string().optional(),
      HOTBED_VERIFIER_DIR: z.string().optional(),
    },
    (values): RewarderConfig => ({
      databaseUrl: values.HOTBED_DATABASE_URL,
      blobFolder: values.HOTBED_BLOB_DIR ?? openDataFolder(values.HOTBED_DATA_DIR).blobs,
      nats: toNatsConfig(values, 'rewarder'),
      modelFolder: resolve(values.HOTBED_BASE_MODEL),
      verifierFolder: values.HOTBED_VERIFIER_DIR === undefined ? null : resolve(values.HOTBED_VERIFIER_DIR),
    }),
    env,
  );
}
