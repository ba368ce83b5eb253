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
import { z } from 'zod';

export interface GatewayConfig {
  databaseUrl: string;
  nats: NatsConfig;
  blobFolder: string;
  http: { host: string; port: number };
}

/** @throws ConfigError naming every wrong variable */
export function loadGatewayConfig(env: NodeJS.ProcessEnv): GatewayConfig {
  return loadConfig(
    {
      ...databaseConfigShape,
      ...natsConfigShape,
      ...blobConfigShape,
      HOTBED_HTTP_HOST: z.string().default('127.0.0.1'),
      HOTBED_HTTP_PORT: integerVariable(0, 65535).default(7700),
    },
    (values): GatewayConfig => ({
      databaseUrl: values.HOTBED_DATABASE_URL,
      nats: toNatsConfig(values, 'gateway'),
      blobFolder: toBlobFolder(values),
      http: { host: values.HOTBED_HTTP_HOST, port: values.HOTBED_HTTP_PORT },
    }),
    env,
  );
}
