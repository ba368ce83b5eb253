import { existsSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { DomainError } from '#hotbed/contracts';
import { LOG_LEVELS, databaseConfigShape, integerVariable, loadConfig, type LogLevel } from '#hotbed/runtime';
import { z } from 'zod';
import { ROOT, platformFilesHere } from './platform-files';

const SEEDLING = join(ROOT, 'models', 'seedling');

export interface PlatformConfig {
  dataDir: string;
  modelFolder: string;
  http: { host: string; port: number };
  logLevel: LogLevel;
  /** null = embedded. */
  database: { url: string; ownerUrl: string } | null;
  postgresPort: number;
  /** null = our own server. */
  natsUrl: string | null;
  natsPort: number;
  /** Where a fetched nats-server is kept: several data folders share one. */
  toolsDir: string;
}

/** @throws ConfigError naming every wrong variable; NotFound when the model folder is missing */
export function loadPlatformConfig(env: NodeJS.ProcessEnv): PlatformConfig {
  const config = loadConfig(
    {
      HOTBED_BASE_MODEL: z.string().optional(),
      HOTBED_HTTP_HOST: z.string().default('127.0.0.1'),
      HOTBED_HTTP_PORT: integerVariable(0, 65535).default(7700),
      HOTBED_LOG_LEVEL: z.enum(LOG_LEVELS).default('info'),
      HOTBED_DATABASE_URL: databaseConfigShape.HOTBED_DATABASE_URL.optional(),
      HOTBED_DATABASE_OWNER_URL: databaseConfigShape.HOTBED_DATABASE_URL.optional(),
      HOTBED_POSTGRES_PORT: integerVariable(0, 65535).default(0),
      HOTBED_NATS_URL: z.string().optional(),
      HOTBED_NATS_PORT: integerVariable(0, 65535).default(0),
    },
    (values): PlatformConfig => ({
      dataDir: platformFilesHere(env).dataDir,
      modelFolder: resolve(values.HOTBED_BASE_MODEL ?? SEEDLING),
      http: { host: values.HOTBED_HTTP_HOST, port: values.HOTBED_HTTP_PORT },
      logLevel: values.HOTBED_LOG_LEVEL,
      database:
        values.HOTBED_DATABASE_URL === undefined
          ? null
          : {
              url: values.HOTBED_DATABASE_URL,
              ownerUrl: values.HOTBED_DATABASE_OWNER_URL ?? values.HOTBED_DATABASE_URL,
            },
      postgresPort: values.HOTBED_POSTGRES_PORT,
      natsUrl: values.HOTBED_NATS_URL ?? null,
      natsPort: values.HOTBED_NATS_PORT,
      toolsDir: join(ROOT, '.hotbed', 'tools'),
    }),
    env,
  );
  if (!existsSync(join(config.modelFolder, 'config.json'))) {
    throw new DomainError(
      'NotFound',
      'model_folder_not_found',
      `HOTBED_BASE_MODEL: ${config.modelFolder} is no model folder (no config.json in it)`,
    );
  }
  return config;
}
