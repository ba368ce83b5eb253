import {
  databaseConfigShape,
  integerVariable,
  loadConfig,
  natsConfigShape,
  openDataFolder,
  toNatsConfig,
  type NatsConfig,
} from '#hotbed/runtime';
import { z } from 'zod';

export interface IngestConfig {
  databaseUrl: string;
  nats: NatsConfig;
  blobFolder: string;
  /** Room of each tenant's ingest stream on the broker; absent = the library's default. */
  ingestStreamBytes: number | undefined;
}

/** @throws ConfigError naming every wrong variable */
export function loadIngestConfig(env: NodeJS.ProcessEnv): IngestConfig {
  return loadConfig(
    {
      ...databaseConfigShape,
      ...natsConfigShape,
      HOTBED_DATA_DIR: z.string().optional(),
      HOTBED_BLOB_DIR: z.string().optional(),
      HOTBED_INGEST_MAX_BYTES: integerVariable(1 << 20, Number.MAX_SAFE_INTEGER).optional(),
    },
    (values): IngestConfig => ({
      databaseUrl: values.HOTBED_DATABASE_URL,
      nats: toNatsConfig(values, 'ingest'),
      blobFolder: values.HOTBED_BLOB_DIR ?? openDataFolder(values.HOTBED_DATA_DIR).blobs,
      ingestStreamBytes: values.HOTBED_INGEST_MAX_BYTES,
    }),
    env,
  );
}
