import { execFile } from 'node:child_process';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { z } from 'zod';

const MAIN = join(__dirname, '..', '..', '..', 'gpu-worker', 'src', 'engine', 'offered-numerics.js');
/** It measures for 0.2 s; a busy machine may take long. */
const TIMEOUT_MS = 30_000;

const offersSchema = z.array(z.object({ id: z.string(), refusal: z.string().nullable() }));

/** What this machine offers of every numerics contract, asked of the engine in a process of its own. */
export async function offeredNumerics(): Promise<z.output<typeof offersSchema>> {
  const { stdout } = await promisify(execFile)(process.execPath, [MAIN], { timeout: TIMEOUT_MS });
  return offersSchema.parse(JSON.parse(stdout));
}
