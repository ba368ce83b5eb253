import { Unavailable } from '#hotbed/contracts';
import { migrate } from '#hotbed/event-store';
import { startEmbeddedPostgres, type DataFolder, type Logger } from '#hotbed/runtime';
import type { PlatformConfig } from './platform.config';
import { ServiceKeeper } from './service-keeper';

export interface PlatformDatabase {
  url: string;
  ownerUrl: string;
  stop(): Promise<void>;
}

/** The configured database, else the embedded one. */
export async function startDatabase(
  config: PlatformConfig,
  folder: DataFolder,
  logger: Logger,
  onProgress: (line: string) => void,
): Promise<PlatformDatabase> {
  if (config.database !== null) return { ...config.database, stop: () => Promise.resolve() };
  onProgress('starting PostgreSQL');
  const start = (port: number) => startEmbeddedPostgres({ dataDir: folder.postgres, port });
  const server = await start(config.postgresPort);
  const keeper = new ServiceKeeper('PostgreSQL', server, () => start(server.port), logger, onProgress);
  return { url: server.url, ownerUrl: server.ownerUrl, stop: () => keeper.stop() };
}

/** @throws Unavailable naming address and variable of a database from outside that does not answer */
export async function migrateDatabase(database: PlatformDatabase, config: PlatformConfig): Promise<void> {
  try {
    await migrate(database.ownerUrl);
  } catch (error) {
    if (config.database === null || !(error instanceof Unavailable)) throw error;
    const { host } = new URL(database.ownerUrl);
    const message = `no PostgreSQL answers at ${host}; start it, or set HOTBED_DATABASE_URL (unset: the embedded one)`;
    throw new Unavailable(error.code, message, { cause: error });
  }
}
