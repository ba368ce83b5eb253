import { mkdirSync, mkdtempSync, rmSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { existsSync, readFileSync } from 'node:fs';
import { FileBlobStore, PgEventStore, createPool } from '#hotbed/event-store';
import { loadPlatformConfig } from '../platform/platform.config';
import { platformFiles } from '../platform/platform-files';
import { startPlatform, type Platform } from '../platform/start-platform';

export interface DemoPlatform extends Platform {
  events: PgEventStore;
  /** Stops everything; removes the data folder unless it is to be kept. */
  end(keep: boolean): Promise<void>;
}

/** A platform in a fresh folder below the data folder: nothing that an earlier run left can matter. */
export async function startDemoPlatform(name: string, onProgress: (line: string) => void): Promise<DemoPlatform> {
  const config = loadPlatformConfig(process.env);
  mkdirSync(config.dataDir, { recursive: true });
  const dataDir = mkdtempSync(join(config.dataDir, `${name}-`));
  const http = { ...config.http, port: process.env['HOTBED_HTTP_PORT'] === undefined ? 0 : config.http.port };
  const platform = await startPlatform({ ...config, dataDir, http }, process.env, onProgress).catch(
    (error: unknown) => {
      removeDataFolder(dataDir);
      throw error;
    },
  );
  const pool = createPool(platform.databaseUrl, { applicationName: 'hotbed-demo', max: 2 });
  const events = new PgEventStore(
    pool,
    new FileBlobStore({ root: platformFiles(dataDir, process.env['HOTBED_BLOB_DIR']).blobs }),
  );
  return {
    ...platform,
    events,
    async end(keep) {
      await pool.end();
      await platform.stop();
      if (!keep) removeDataFolder(dataDir);
    },
  };
}

/** Also the database's files where root's server had to keep them elsewhere (a pointer file says where). */
function removeDataFolder(dataDir: string): void {
  const pointer = join(dataDir, 'postgres', 'location');
  if (existsSync(pointer)) {
    const place = readFileSync(pointer, 'utf8').trim();
    if (dirname(place).endsWith('/hotbed')) rmSync(place, { recursive: true, force: true });
  }
  rmSync(dataDir, { recursive: true, force: true });
}
