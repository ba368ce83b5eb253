import { startEmbeddedPostgres, type DataFolder } from '#hotbed/runtime';
import type { PlatformConfig } from './platform.config';

export interface PlatformDatabase {
  url: string;
  ownerUrl: string;
  stop(): Promise<void>;
}

/** The configured database, else the embedded one. */
export async function startDatabase(
  config: PlatformConfig,
  folder: DataFolder,
  onProgress: (line: string) => void,
): Promise<PlatformDatabase> {
  if (config.database !== null) return { ...config.database, stop: () => Promise.resolve() };
  onProgress('starting PostgreSQL');
  return startEmbeddedPostgres({ dataDir: folder.postgres, port: config.postgresPort });
}
