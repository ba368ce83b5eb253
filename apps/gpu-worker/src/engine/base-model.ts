import { basename } from 'node:path';
import type { PayloadOf } from '#hotbed/contracts';
import { openEngine, type Engine, type EngineOptions } from '#hotbed/engine';

/** Loads the base that this worker keeps hot. @throws EngineFault naming the file, field or tensor that is wrong. */
export function loadBaseModel(options: EngineOptions): Promise<Engine> {
  return openEngine(options);
}

export function baseModelLoaded(workerId: string, modelFolder: string, engine: Engine): PayloadOf<'BaseModelLoaded'> {
  const info = engine.info();
  return {
    workerId,
    name: basename(modelFolder),
    baseDigest: info.baseDigest,
    numericsId: info.numericsId,
    architecture: info.architecture,
    parameterCount: info.parameterCount,
    contextLength: info.contextLength,
    tokenizerSize: info.tokenizerSize,
    kernels: info.kernels,
    threads: info.threads,
  };
}
