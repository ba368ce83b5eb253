import { spawn } from 'node:child_process';
import type { NumericsId } from '../src/engine.types';
import { addonPath } from '../src/native-addon';
import { DEFAULT_ENGINE_OPTIONS } from '../src/open-engine';
import { LEAST_ROUNDS, median, secondsOf } from './interleave';
import { repositoryFile } from './repository-file';
import { adapterSpec } from './workload';

/** Seconds from starting a process of its own to its first sampled token: what a job pays that finds no hot engine. */
export async function measureColdStart(folder: string, numerics: NumericsId): Promise<number> {
  const seconds: number[] = [];
  while (seconds.length < LEAST_ROUNDS) seconds.push(await secondsOf(() => startOnce(folder, numerics)));
  return median(seconds);
}

function startOnce(folder: string, numerics: NumericsId): Promise<void> {
  const job = repositoryFile('libs', 'engine', 'bench', 'cold-start-job.mjs');
  const options = { ...DEFAULT_ENGINE_OPTIONS, modelFolder: folder, numerics, mutation: false };
  const args = [job, addonPath(), JSON.stringify(options), JSON.stringify(adapterSpec(8, 1))];
  return new Promise((resolve, reject) => {
    const child = spawn(process.execPath, args, { stdio: ['ignore', 'pipe', 'inherit'] });
    let said = false;
    child.stdout.once('data', () => {
      said = true;
      resolve();
    });
    child.once('error', reject);
    child.once('close', (code) => {
      if (!said) reject(new Error(`the cold start ended with code ${code ?? 'none'} before its first token`));
    });
  });
}
