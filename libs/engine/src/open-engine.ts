import { AddonEngine } from './addon-engine';
import { toEngineFault } from './engine.errors';
import type { Engine, EngineOptions, NumericsOffer } from './engine.types';
import { nativeAddon, type NativeOptions } from './native-addon';

/**
 * Loads a base from a Hugging Face folder and keeps it in memory until `dispose`.
 *
 * @throws EngineFault `invalid_file` (names file, field or tensor), `unsupported_model`, `invalid_argument` (names the
 * option), `unsupported_cpu` (`offeredNumerics` says why), `out_of_memory`, `io`.
 */
export async function openEngine(options: EngineOptions): Promise<Engine> {
  return openTrialEngine(options, { mutation: false });
}

/** With what only the isolation benchmark and its test ask for: see `NativeOptions`. */
export async function openTrialEngine(
  options: EngineOptions,
  trial: Pick<NativeOptions, 'mutation' | 'preemptEvery'>,
): Promise<Engine> {
  try {
    return new AddonEngine(await nativeAddon().open({ ...options, ...trial }));
  } catch (error) {
    throw toEngineFault(error);
  }
}

/** What this machine offers of every numerics contract; found out once a process, in about 0.2 s. */
export function offeredNumerics(): Promise<NumericsOffer[]> {
  return nativeAddon().numericsOffers();
}

/** Fits a small base and tens of adapters; a worker passes its own figures. */
export const DEFAULT_ENGINE_OPTIONS: Omit<EngineOptions, 'modelFolder'> = {
  numerics: 'f32-1',
  kernels: null,
  threads: null,
  kvCacheMiB: 256,
  activationBudgetMiB: 1024,
  maxStepRows: 256,
  maxTrainRows: 2048,
  scheduling: { decodeFloor: 0.25, trainingFloor: 0.25, maxWaitGflop: 2000 },
  limits: {
    total: { samplingCalls: 16_384, samplingTokens: 16 << 20, trainingRows: 4 << 20, trainingMiB: 1024 },
    // Half of the whole: no tenant can shut the others out.
    perTenant: { samplingCalls: 8192, samplingTokens: 8 << 20, trainingRows: 2 << 20, trainingMiB: 512 },
  },
};
