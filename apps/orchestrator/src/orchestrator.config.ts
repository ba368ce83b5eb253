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

export interface OrchestratorConfig extends TextConfig {
  databaseUrl: string;
  blobFolder: string;
  nats: NatsConfig;
}

/** @throws ConfigError naming every wrong variable */
export function loadOrchestratorConfig(env: NodeJS.ProcessEnv): OrchestratorConfig {
  return loadConfig(
    {
      ...databaseConfigShape,
      ...natsConfigShape,
      ...blobConfigShape,
      ...textConfigShape,
    },
    (values): OrchestratorConfig => ({
      databaseUrl: values.HOTBED_DATABASE_URL,
      blobFolder: toBlobFolder(values),
      nats: toNatsConfig(values, 'orchestrator'),
      ...toTextConfig(values),
    }),
    env,
  );
}
