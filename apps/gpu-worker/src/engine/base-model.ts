import { createHash } from 'node:crypto';
import { mkdir, readFile, rm } from 'node:fs/promises';
import { basename, join } from 'node:path';
import type { PayloadOf } from '#hotbed/contracts';
import { EvictingEngine, openEngine, type Engine, type EngineOptions } from '#hotbed/engine';

/** Loads the base that this worker keeps hot. @throws EngineFault naming the file, field or tensor that is wrong. */
export function loadBaseModel(options: EngineOptions): Promise<Engine> {
  return openEngine(options);
}

/**
 * The same, and above `adapterMemoryBytes` idle adapters wait in snapshots until they are called.
 * @param folder of this worker alone: what an earlier life of it left there is removed
 */
export async function loadEvictingBaseModel(
  options: EngineOptions,
  adapterMemoryBytes: number,
  folder: string,
): Promise<EvictingEngine> {
  await rm(folder, { recursive: true, force: true });
  await mkdir(folder, { recursive: true, mode: 0o700 });
  const engine = await loadBaseModel(options);
  return EvictingEngine.over(engine, { adapterMemoryBytes, folder });
}

export async function baseModelLoaded(
  workerId: string,
  modelFolder: string,
  engine: Engine,
): Promise<PayloadOf<'BaseModelLoaded'>> {
  const info = engine.info();
  const tokenizerDigest = await tokenizerDigestOf(modelFolder);
  return {
    workerId,
    name: basename(modelFolder),
    baseDigest: info.baseDigest,
    numericsId: info.numericsId,
    architecture: info.architecture,
    parameterCount: info.parameterCount,
    contextLength: info.contextLength,
    tokenizerSize: info.tokenizerSize,
    ...(tokenizerDigest === null ? {} : { tokenizerDigest }),
    kernels: info.kernels,
    threads: info.threads,
  };
}

/** SHA-256 of tokenizer.json, so that whoever turns text into ids knows whether its file is the same; null = no file. */
async function tokenizerDigestOf(modelFolder: string): Promise<string | null> {
  try {
    const bytes = await readFile(join(modelFolder, 'tokenizer.json'));
    return createHash('sha256').update(bytes).digest('hex');
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return null;
    throw error;
  }
}
