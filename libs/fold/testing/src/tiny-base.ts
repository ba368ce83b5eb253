import { join } from 'node:path';
import { DEFAULT_ENGINE_OPTIONS, openEngine, type Engine, type EngineOptions } from '#hotbed/engine';

/** A Llama of two layers with random weights: everything works on it, nothing takes long. */
export const TINY_BASE = join(__dirname, '../../../../native/test/fixtures/llama-gqa-f32');

export function openTinyBase(options: Partial<EngineOptions> = {}): Promise<Engine> {
  return openEngine({ ...DEFAULT_ENGINE_OPTIONS, modelFolder: TINY_BASE, threads: 1, kvCacheMiB: 16, ...options });
}
