import {
  blobConfigShape,
  databaseConfigShape,
  integerVariable,
  loadConfig,
  natsConfigShape,
  toBlobFolder,
  toNatsConfig,
  type NatsConfig,
} from '#hotbed/runtime';

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
      ...blobConfigShape,
      HOTBED_INGEST_MAX_BYTES: integerVariable(1 << 20, Number.MAX_SAFE_INTEGER).optional(),
    },
    (values): IngestConfig => ({
      databaseUrl: values.HOTBED_DATABASE_URL,
      nats: toNatsConfig(values, 'ingest'),
      blobFolder: toBlobFolder(values),
      ingestStreamBytes: values.HOTBED_INGEST_MAX_BYTES,
    }),
    env,
  );
}
