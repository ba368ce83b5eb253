export { EngineFault } from './engine.errors';
export { DEFAULT_ENGINE_OPTIONS, openEngine } from './open-engine';
export { TARGET_MODULES } from './engine.types';
export type {
  AdamParams,
  AdapterFile,
  AdapterHandle,
  AdapterSpec,
  Branch,
  Datum,
  Engine,
  EngineFaultCode,
  EngineInfo,
  EngineOptions,
  EngineStats,
  ForwardBackwardResult,
  KernelPath,
  Loss,
  LossName,
  OptimStepResult,
  PolicyHandle,
  SampledSequence,
  SampleRequest,
  SampleResult,
  SamplingParams,
  StopReason,
  TargetModule,
} from './engine.types';
