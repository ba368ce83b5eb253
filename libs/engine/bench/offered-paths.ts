import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { EngineFault } from '../src/engine.errors';
import type { KernelPath } from '../src/engine.types';
import { DEFAULT_ENGINE_OPTIONS, openEngine } from '../src/open-engine';
import { Random } from './random';
import { randomShape, writeRandomModel } from './random-model';

const PATHS: readonly KernelPath[] = ['scalar', 'avx2', 'avx512'];

/** The kernel paths that this CPU runs, slowest first. */
export async function offeredPaths(): Promise<KernelPath[]> {
  const folder = mkdtempSync(join(tmpdir(), 'hotbed-paths-'));
  try {
    const random = new Random(1);
    writeRandomModel(folder, randomShape(random), random);
    const offered: KernelPath[] = [];
    for (const kernels of PATHS) {
      try {
        const engine = await openEngine({ ...DEFAULT_ENGINE_OPTIONS, modelFolder: folder, kernels });
        await engine.dispose();
        offered.push(kernels);
      } catch (error) {
        if (!(error instanceof EngineFault && error.code === 'unsupported_cpu')) throw error;
      }
    }
    return offered;
  } finally {
    rmSync(folder, { recursive: true });
  }
}
