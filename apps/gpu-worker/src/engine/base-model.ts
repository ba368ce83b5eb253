import { createHash } from 'node:crypto';
import { mkdir, readFile, rm } from 'node:fs/promises';
import { basename, join } from 'node:path';
import { DomainError, type PayloadOf } from '#hotbed/contracts';
import {
  EngineFault,
  EvictingEngine,
  NUMERICS_IDS,
  offeredNumerics,
  openEngine,
  type Engine,
  type EngineOptions,
  type NumericsId,
} from '#hotbed/engine';

/** Loads the base that this worker keeps hot. @throws EngineFault naming the file, field or tensor that is wrong. */
export function loadBaseModel(options: EngineOptions): Promise<Engine> {
  return openEngine(options);
}

/**
 * The base under the contract that a history was made under, whatever the settings say. Where this machine does not
 * offer it, the fastest kernel path that computes its bits does.
 * @throws DomainError `numerics_mismatch`: this version of the engine does not know the contract
 */
export async function loadBaseModelToVerify(options: EngineOptions, numericsId: string): Promise<Engine> {
  const numerics = NUMERICS_IDS.find((id) => id === numericsId);
  if (numerics === undefined) {
    throw new DomainError('EngineFault', 'numerics_mismatch', `this engine does not compute ${numericsId}`);
  }
  if (options.kernels !== null || (await isOffered(numerics))) return loadBaseModel({ ...options, numerics });
  // Not the instruction's own path: it is missing, wrong or slower here, or the contract would be offered.
  for (const kernels of ['avx512', 'avx2'] as const) {
    const engine = await openEngine({ ...options, numerics, kernels }).catch((error: unknown) => {
      if (error instanceof EngineFault && error.code === 'unsupported_cpu') return null;
      throw error;
    });
    if (engine !== null) return engine;
  }
  return openEngine({ ...options, numerics, kernels: 'scalar' });
}

async function isOffered(numerics: NumericsId): Promise<boolean> {
  const offer = (await offeredNumerics()).find(({ id }) => id === numerics);
  return offer?.refusal === null;
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
