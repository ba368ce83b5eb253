import { existsSync, openSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { pino } from 'pino';
import { Unavailable } from '#hotbed/contracts';
import {
  Health,
  createLogger,
  createMetrics,
  openDataFolder,
  shutDown,
  writePrivateFile,
  type DataFolder,
  type HostedApp,
  type Logger,
  type ShutdownStep,
} from '#hotbed/runtime';
import { issueAdminKey, newApiKey } from './admin-key';
import { startBroker, type PlatformBroker } from './broker';
import { migrateDatabase, startDatabase } from './database';
import { CONTROL_PLANE, type GatewayApp } from './hosted-apps';
import { lockDataFolder } from './lock-data-folder';
import type { PlatformConfig } from './platform.config';
import { platformFiles } from './platform-files';
import { WorkerKeeper } from './worker-keeper';

const READY_TIMEOUT_MS = 120_000;
const SHUTDOWN_TIMEOUT_MS = 30_000;

export interface Platform {
  url: string;
  folder: DataFolder;
  /** Key of role admin in tenant `default`. */
  apiKey: string;
  apiKeyFile: string;
  /** As the application role. */
  databaseUrl: string;
  natsUrl: string;
  broker: PlatformBroker;
  worker: WorkerKeeper;
  stop(): Promise<void>;
}

/**
 * Boots everything on this machine: database and broker where none is configured, the control plane in this process, one
 * worker beside it. Resolves when all of it is ready; on failure it stops what it started.
 * @param env HOTBED_* variables; @param onProgress one line for people at each stage
 */
export async function startPlatform(
  config: PlatformConfig,
  env: NodeJS.ProcessEnv,
  onProgress: (line: string) => void,
): Promise<Platform> {
  const folder = openDataFolder(config.dataDir);
  const started: ShutdownStep[] = [];
  const logger = createLogger({
    name: 'hotbed',
    level: config.logLevel,
    // Opened here, not by pino in the background: a start that fails at once must not end in pino's own failure.
    destination: pino.destination({ dest: openSync(join(folder.logs, 'hotbed.log'), 'a', 0o600), sync: false }),
  });
  const stop = () => shutDown([...started].reverse(), SHUTDOWN_TIMEOUT_MS, logger);
  try {
    return await boot(config, env, { folder, logger, started, stop, onProgress });
  } catch (error) {
    await stop().catch(() => undefined);
    throw error;
  }
}

interface Boot {
  folder: DataFolder;
  logger: Logger;
  started: ShutdownStep[];
  stop: () => Promise<void>;
  onProgress: (line: string) => void;
}

async function boot(config: PlatformConfig, env: NodeJS.ProcessEnv, context: Boot): Promise<Platform> {
  const { folder, logger, started, stop, onProgress } = context;
  const keep = <T extends { stop: () => void | Promise<void> }>(name: string, part: T): T => {
    started.push({ name, run: () => part.stop() });
    return part;
  };

  const files = platformFiles(folder.root);
  keep('lock', lockDataFolder(folder.root));
  const database = keep('database', await startDatabase(config, folder, logger, onProgress));
  writePrivateFile(files.databaseUrl, `${database.url}\n`);
  await migrateDatabase(database, config);
  const broker = keep('broker', await startBroker(config, folder, database.url, logger, onProgress));
  const appEnv = appEnvironment(env, config, folder, database.url, broker);

  const worker = keep('gpu-worker', new WorkerKeeper(appEnv, folder, logger));
  await worker.start();

  const health = new Health();
  health.readiness('gpu-worker', () => worker.assertReady());
  const host = { logger, metrics: createMetrics(), health };
  const apps: HostedApp[] = [];
  for (const create of CONTROL_PLANE) {
    const app = await create(appEnv, host);
    await app.start();
    apps.push(keep(app.name, app));
  }
  started.push({ name: 'drain', run: () => health.draining() });
  const gateway = apps.find((app) => app.name === 'gateway') as GatewayApp;

  onProgress('loading the base');
  await untilReady(health, worker);
  const apiKeyFile = files.apiKey;
  const apiKey = await ensureAdminKey(broker, apiKeyFile);
  writePrivateFile(files.address, `${gateway.url}\n`);
  return {
    url: gateway.url,
    folder,
    apiKey,
    apiKeyFile,
    databaseUrl: database.url,
    natsUrl: broker.url,
    broker,
    worker,
    stop,
  };
}

/** What every hosted app and the worker read. */
function appEnvironment(
  env: NodeJS.ProcessEnv,
  config: PlatformConfig,
  folder: DataFolder,
  databaseUrl: string,
  broker: PlatformBroker,
): NodeJS.ProcessEnv {
  return {
    ...env,
    HOTBED_DATABASE_URL: databaseUrl,
    HOTBED_NATS_URL: broker.url,
    ...(broker.credentialsFile === null ? {} : { HOTBED_NATS_CREDENTIALS_FILE: broker.credentialsFile }),
    HOTBED_DATA_DIR: folder.root,
    HOTBED_BASE_MODEL: config.modelFolder,
    HOTBED_HTTP_HOST: config.http.host,
    HOTBED_HTTP_PORT: String(config.http.port),
    HOTBED_LOG_LEVEL: config.logLevel,
  };
}

async function untilReady(health: Health, worker: WorkerKeeper): Promise<void> {
  const deadline = Date.now() + READY_TIMEOUT_MS;
  for (;;) {
    const report = await health.ready();
    if (report.ok) return;
    const fatal = worker.startFailure();
    if (fatal !== null) throw new Unavailable('worker_cannot_start', fatal);
    if (Date.now() > deadline) {
      const failing = Object.entries(report.checks).filter(([, state]) => state !== 'ok');
      throw new Unavailable(
        'not_ready',
        `not ready: ${failing.map(([name, state]) => `${name}: ${state}`).join('; ')}`,
      );
    }
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
}

/** The key of the first start is used for ever; its file is its owner's alone, the log keeps its digest. */
async function ensureAdminKey(broker: PlatformBroker, file: string): Promise<string> {
  const existing = existsSync(file) ? readFileSync(file, 'utf8').trim() : null;
  const key = existing ?? newApiKey();
  await issueAdminKey({ url: broker.url, ...broker.credentials('admin') }, key);
  if (existing === null) writePrivateFile(file, `${key}\n`);
  return key;
}
