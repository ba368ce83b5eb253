import {
  blobConfigShape,
  databaseConfigShape,
  loadConfig,
  natsConfigShape,
  toBlobFolder,
  toNatsConfig,
  type NatsConfig,
} from '#hotbed/runtime';

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
      ...blobConfigShape,
    },
    (values): RegistryConfig => ({
      databaseUrl: values.HOTBED_DATABASE_URL,
      nats: toNatsConfig(values, 'registry'),
      blobFolder: toBlobFolder(values),
    }),
    env,
  );
}
