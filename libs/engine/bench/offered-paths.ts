import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { EngineFault } from '../src/engine.errors';
import { KERNEL_PATHS, type KernelPath, type NumericsId } from '../src/engine.types';
import { DEFAULT_ENGINE_OPTIONS, openEngine } from '../src/open-engine';
import { Random } from './random';
import { randomShape, writeRandomModel } from './random-model';

/** The kernel paths that this CPU runs, slowest first. Each computes every numerics id. */
export async function offeredPaths(): Promise<KernelPath[]> {
  const folder = mkdtempSync(join(tmpdir(), 'hotbed-paths-'));
  try {
    const random = new Random(1);
    writeRandomModel(folder, randomShape(random), random);
    const offered: KernelPath[] = [];
    for (const kernels of KERNEL_PATHS) {
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

/** How often each kernel path came up, by numerics id. */
export type PathCounts = Partial<Record<NumericsId, Partial<Record<KernelPath, number>>>>;

export function countPath(counts: PathCounts, numerics: NumericsId, path: KernelPath, by: number): void {
  const of = (counts[numerics] ??= {});
  of[path] = (of[path] ?? 0) + by;
}

/** In words: `f32-1: scalar 3, avx2 3; bf16-1: ...` */
export const pathText = (counts: PathCounts): string =>
  Object.entries(counts)
    .map(([numerics, paths]) => {
      const each = Object.entries(paths).map(([path, count]) => `${path} ${count}`);
      return `${numerics}: ${each.join(', ')}`;
    })
    .join('; ');
