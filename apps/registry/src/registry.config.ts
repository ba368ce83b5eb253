import {
  databaseConfigShape,
  loadConfig,
  natsConfigShape,
  openDataFolder,
  toNatsConfig,
  type NatsConfig,
} from '#hotbed/runtime';
import { z } from 'zod';

export interface RegistryConfig {
  databaseUrl: string;
  nats: NatsConfig;
  blobFolder: string;
}

/** @throws ConfigError naming every wrong variable */
export function loadRegistryConfig(env: NodeJS.ProcessEnv): RegistryConfig {
  return loadConfig(
    {
      ...databaseConfigShape,
      ...natsConfigShape,
      HOTBED_DATA_DIR: z.string().optional(),
      HOTBED_BLOB_DIR: z.string().optional(),
    },
    (values): RegistryConfig => ({
      databaseUrl: values.HOTBED_DATABASE_URL,
      nats: toNatsConfig(values, 'registry'),
      blobFolder: values.HOTBED_BLOB_DIR ?? openDataFolder(values.HOTBED_DATA_DIR).blobs,
    }),
    env,
  );
}
