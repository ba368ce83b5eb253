import { existsSync } from 'node:fs';
import { createRequire } from 'node:module';
import { dirname, join } from 'node:path';
import type {
  AdamParams,
  AdapterFile,
  AdapterHandle,
  AdapterMemory,
  AdapterSpec,
  Datum,
  EngineInfo,
  EngineOptions,
  EngineStats,
  NumericsOffer,
  ForwardBackwardResult,
  Loss,
  OptimStepResult,
  PolicyHandle,
  SampledToken,
  SampleRequest,
  SampleResult,
  TenantStats,
} from './engine.types';

/**
 * Options as the addon takes them. `mutation` reorders one chain on purpose: the isolation benchmark proves with it that
 * it would notice. With `preemptEvery` the sequence that was admitted last gives up its pages after every so many steps.
 */
export interface NativeOptions extends EngineOptions {
  mutation: boolean;
  preemptEvery?: number;
}

/** The addon's object: the contract's methods one to one; errors are plain `Error`s with a `code`. */
export interface NativeEngine {
  info(): EngineInfo;
  stats(): EngineStats;
  createAdapter(spec: AdapterSpec, tenant: string | null): Promise<AdapterHandle>;
  specOf(adapter: AdapterHandle): AdapterSpec;
  dropAdapter(adapter: AdapterHandle): Promise<void>;
  pin(adapter: AdapterHandle): Promise<PolicyHandle>;
  release(policy: PolicyHandle): void;
  /** `id` is for cancel and stopSequence; 0 when the request was refused. `listener` must not throw. */
  sample(
    request: SampleRequest,
    listener: ((tokens: SampledToken[]) => void) | null,
  ): { id: number; result: Promise<SampleResult> };
  stopSequence(id: number, sequence: number, length: number): void;
  cancel(id: number): void;
  forward(
    adapter: AdapterHandle | null,
    loss: Loss,
    datums: readonly Datum[],
    tenant: string | null,
  ): Promise<ForwardBackwardResult>;
  forwardBackward(adapter: AdapterHandle, loss: Loss, datums: readonly Datum[]): Promise<ForwardBackwardResult>;
  optimStep(adapter: AdapterHandle, params: AdamParams): Promise<OptimStepResult>;
  stateDigest(adapter: AdapterHandle, opIndex: string): Promise<string>;
  weightsDigest(policy: PolicyHandle): Promise<string>;
  snapshot(adapter: AdapterHandle, opIndex: string, path: string): Promise<AdapterFile>;
  restore(path: string, tenant: string | null): Promise<{ adapter: AdapterHandle; opIndex: string; spec: AdapterSpec }>;
  exportWeights(policy: PolicyHandle, path: string): Promise<AdapterFile>;
  peftConfig(policy: PolicyHandle): string;
  importPeft(
    folder: string,
    seed: string,
    tenant: string | null,
  ): Promise<{ adapter: AdapterHandle; opIndex: string; spec: AdapterSpec }>;
  tensors(adapter: AdapterHandle, what: string): Promise<[string, Float32Array][]>;
  logits(policy: PolicyHandle | null, tokens: Int32Array): Promise<Float32Array>;
  setTenantWeight(tenant: string, weight: number): void;
  tenants(): Promise<TenantStats[]>;
  adapterMemory(adapter: AdapterHandle): Promise<AdapterMemory>;
  policyBytes(policy: PolicyHandle): number;
  dispose(): Promise<void>;
}

/** What all threads reach together: 10^9 FLOP/s on registers (bf16 dots: null where the CPU has none), 10^9 bytes/s. */
export interface NativeMachineSample {
  fmaGflops: number;
  bf16Gflops: number | null;
  readGBs: number;
}

/** One round of a linear layer with so many rows, and the machine beside it. */
export interface NativeLinearSample {
  rows: number;
  gflops: number;
  /** Packed weights read, 10^9 bytes/s. */
  weightGBs: number;
  machine: NativeMachineSample;
}

/** For the benchmarks only; its calls run one after another on a thread of their own. */
export interface NativeMachineBench {
  machine(): Promise<NativeMachineSample>;
  linear(layer: {
    dIn: number;
    dOut: number;
    rows: Int32Array;
    /** fp32, bf16 numbers for f32-1, or the pairs of bf16-1. */
    panels: 'wide' | 'narrow' | 'pairs';
    rounds: number;
  }): Promise<NativeLinearSample[]>;
}

interface NativeAddon {
  open(options: NativeOptions): Promise<NativeEngine>;
  numericsOffers(): Promise<NumericsOffer[]>;
  MachineBench: new (options: {
    kernels: string | null;
    threads: number | null;
    readMiB: number;
  }) => NativeMachineBench;
}

const ADDON = join('native', 'build', 'Release', 'hotbed.node');

/** The addon stands at the repository's root, above this file both as source and as build output. */
export function addonPath(): string {
  let folder = __dirname;
  while (!existsSync(join(folder, ADDON))) {
    const parent = dirname(folder);
    if (parent === folder) throw new Error(`${ADDON} is missing: build it with "npm run build:native"`);
    folder = parent;
  }
  return join(folder, ADDON);
}

/** Loads the addon (once per process and thread; Node keeps it). */
export function nativeAddon(): NativeAddon {
  return createRequire(__filename)(addonPath()) as NativeAddon;
}
