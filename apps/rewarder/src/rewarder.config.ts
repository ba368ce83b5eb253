import {
  blobConfigShape,
  databaseConfigShape,
  loadConfig,
  natsConfigShape,
  textConfigShape,
  toBlobFolder,
  toNatsConfig,
  toTextConfig,
  type NatsConfig,
  type TextConfig,
} from '#hotbed/runtime';

export interface RewarderConfig extends TextConfig {
  databaseUrl: string;
  blobFolder: string;
  nats: NatsConfig;
}

/** @throws ConfigError naming every wrong variable */
export function loadRewarderConfig(env: NodeJS.ProcessEnv): RewarderConfig {
  return loadConfig(
    {
      ...databaseConfigShape,
      ...natsConfigShape,
      ...blobConfigShape,
      ...textConfigShape,
    },
    (values): RewarderConfig => ({
      databaseUrl: values.HOTBED_DATABASE_URL,
      blobFolder: toBlobFolder(values),
      nats: toNatsConfig(values, 'rewarder'),
      ...toTextConfig(values),
    }),
    env,
  );
}
