import { spawn } from 'node:child_process';
import { join } from 'node:path';
import { DomainError } from '#hotbed/contracts';
import { loadPlatformConfig } from './platform.config';

const MAIN = join(__dirname, '..', '..', '..', 'gpu-worker', 'src', 'rederive', 'main.js');

export interface Rederived {
  adapterId: string;
  version: number;
  opIndex: string;
  operations: number;
  recorded: { stateDigest: string; weightsDigest: string };
  derived: { stateDigest: string; weightsDigest: string };
  equal: boolean;
}

export interface RederiveSource {
  databaseUrl: string;
  blobFolder: string;
  dataDir: string;
}

/** Folds a version again in a process of its own, with an engine of its own. @throws EngineFault saying what went wrong */
export function rederive(adapterId: string, version: number, source: RederiveSource): Promise<Rederived> {
  const env = {
    ...process.env,
    HOTBED_BASE_MODEL: loadPlatformConfig(process.env).modelFolder,
    HOTBED_DATABASE_URL: source.databaseUrl,
    HOTBED_BLOB_DIR: source.blobFolder,
    HOTBED_DATA_DIR: source.dataDir,
  };
  return new Promise((resolve, reject) => {
    const child = spawn(process.execPath, ['--enable-source-maps', MAIN, adapterId, String(version)], {
      env,
      stdio: ['ignore', 'pipe', 'pipe'],
    });
    let output = '';
    let errors = '';
    child.stdout.setEncoding('utf8').on('data', (text: string) => (output += text));
    child.stderr.setEncoding('utf8').on('data', (text: string) => (errors += text));
    child.on('error', reject);
    child.on('close', () => {
      if (output !== '') resolve(JSON.parse(output) as Rederived);
      else reject(new DomainError('EngineFault', 'rederive_failed', errors.trim()));
    });
  });
}
