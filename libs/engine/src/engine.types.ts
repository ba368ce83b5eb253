/**
 * The typed mirror of the native addon: names, order and units are the same on both sides; absent = `null`.
 *
 * Contract. One `Engine` keeps one frozen base in memory. Everything it returns is a function of
 * (base, numerics id, adapter state, the call's own arguments) and of nothing else: not of what else is running,
 * not of the order in which other adapters' work arrives, not of threads, chunk sizes or kernel path.
 * Every method that computes returns a promise and never blocks the event loop. Calls on one adapter apply in the order
 * in which they were made; calls on different adapters interleave freely. A rejected call leaves the adapter
 * exactly as it was before the call (an `EngineFault` in mid-operation restores the gradient it started from).
 */

/** Which linear layers carry a LoRA pair; the order is the module id of the initialisation rule (0..7). */
export const TARGET_MODULES = ['q', 'k', 'v', 'o', 'gate', 'up', 'down', 'lm_head'] as const;
export type TargetModule = (typeof TARGET_MODULES)[number];

/** What an adapter is made from. Two equal specs on one base give equal bytes. */
export interface AdapterSpec {
  /** 1..256 */
  rank: number;
  /** LoRA alpha, > 0; the scale is alpha / rank, or alpha / sqrt(rank) when `rslora`. */
  alpha: number;
  rslora: boolean;
  /** Non-empty, no duplicates; stored in TARGET_MODULES order. */
  targets: readonly TargetModule[];
  /** Unsigned 64-bit seed as a decimal string. */
  seed: string;
}

/** Kernels by instruction set, slowest first; avx512bf16 is avx512 with the instruction that bf16-1 is made for. */
export const KERNEL_PATHS = ['scalar', 'avx2', 'avx512', 'avx512bf16'] as const;
export type KernelPath = (typeof KERNEL_PATHS)[number];

/** What products with base weights compute: multiply-adds in fp32, or pairs of bf16 added in fp32. */
export const NUMERICS_IDS = ['f32-1', 'bf16-1'] as const;
export type NumericsId = (typeof NUMERICS_IDS)[number];

/** Whether this machine offers a numerics contract to whoever names no kernel path. */
export interface NumericsOffer {
  id: NumericsId;
  /** Why not; null = it does. */
  refusal: string | null;
}

export interface EngineOptions {
  /** Hugging Face folder: config.json, *.safetensors, tokenizer.json, generation_config.json. */
  modelFolder: string;
  /**
   * The contract that every value is computed under, part of every version's identity. bf16-1 is faster where it is
   * offered, and takes a base whose weights are bf16 numbers.
   */
  numerics: NumericsId;
  /** null = the best path this CPU offers. A named path computes either contract, the same bits on all of them. */
  kernels: KernelPath | null;
  /** Threads of the pool; null = number of physical cores the process may use. */
  threads: number | null;
  /** Room for key/value pages of sampling sequences, those that the prefix cache keeps included, MiB. */
  kvCacheMiB: number;
  /**
   * Room for training activations, MiB. Passes are cut to the rows that fit, unless those are too few to keep the kernels
   * busy; then, and for a larger datum, only layer inputs are kept and the rest is computed again (same bits).
   */
  activationBudgetMiB: number;
  /** Most rows (decode tokens plus prefill tokens) of one sampling step. */
  maxStepRows: number;
  /** Most rows of one training pass (see activationBudgetMiB); a datum larger than this runs in a pass of its own. */
  maxTrainRows: number;
  scheduling: SchedulingOptions;
  limits: AdmissionLimits;
}

/** How contested work is shared. No result depends on any of it. */
export interface SchedulingOptions {
  /** Parts of the FLOPs that sampling and training keep while both wait, 0..1, together at most 1. */
  decodeFloor: number;
  trainingFloor: number;
  /** Whoever has waited while so much work was done (10^9 FLOPs, by anybody) goes next, whatever the shares say. */
  maxWaitGflop: number;
}

/** What may be pending at a time, from a call's acceptance to its end; each 1 or more. */
export interface PendingLimits {
  samplingCalls: number;
  /** Tokens of sampling calls: the prompt and all that may be drawn. */
  samplingTokens: number;
  /** Shared rows and branches of training calls. */
  trainingRows: number;
  /** The data of training calls, MiB. */
  trainingMiB: number;
}

/**
 * Above a limit a call is refused with `busy`, naming the limit and what is pending, and nothing else changes. A call
 * larger than a limit is taken while nothing of that measure is pending (of its tenant, or in all): else it never could be.
 */
export interface AdmissionLimits {
  total: PendingLimits;
  perTenant: PendingLimits;
}

export interface EngineInfo {
  /** SHA-256 hex over canonical config, tensors and tokenizer ids: names the base by content. */
  baseDigest: string;
  numericsId: NumericsId;
  kernels: KernelPath;
  threads: number;
  architecture: string;
  hiddenSize: number;
  layers: number;
  vocabularySize: number;
  /** Ids at or above this are never drawn (padding rows of the embedding). */
  tokenizerSize: number;
  /** Positions a sequence may have. */
  contextLength: number;
  bosTokenId: number | null;
  eosTokenIds: readonly number[];
  parameterCount: number;
  baseBytes: number;
}

/** A live, trainable adapter inside the engine. Opaque; never a name, never reused within a process. */
export type AdapterHandle = number & { readonly __adapter: unique symbol };
/** An immutable copy of an adapter's A and B at one operation index. Opaque; release when no longer needed. */
export type PolicyHandle = number & { readonly __policy: unique symbol };

export interface SamplingParams {
  /** 0 = argmax. Otherwise > 0. */
  temperature: number;
  /** 0 = off. */
  topK: number;
  /** >= 1 = off. */
  topP: number;
  /** 1.. ; the sequence also ends at the context length. */
  maxTokens: number;
  /** Generation stops after one of these was drawn; it is part of the tokens. */
  stopTokenIds: readonly number[];
}

export interface SampleRequest {
  /** null = the plain base. */
  policy: PolicyHandle | null;
  /** Non-empty token ids. */
  prompt: Int32Array;
  /** One sequence per seed: unsigned 64-bit decimal strings. */
  seeds: readonly string[];
  params: SamplingParams;
  /** Also return log-probs of the prompt's tokens (first entry NaN). */
  promptLogprobs: boolean;
  /** Who pays; null or absent = the policy's tenant, of the plain base nobody in particular. */
  tenant?: string | null;
  /** 0 = off (default) .. 20: also return so many of the likeliest tokens at each prompt position but the first. */
  promptTopK?: number;
  /** 0 = off (default) .. 20: the same at each drawn token. */
  topLogprobs?: number;
}

/**
 * The likeliest tokens of several positions, k of each one after another (k as asked for, at most the tokenizer's size):
 * log-prob descending (temperature 1, unmasked, as policy log-probs), then id ascending.
 */
export interface TopTokens {
  /** [positions x k] */
  tokens: Int32Array;
  /** [positions x k] */
  logprobs: Float32Array;
}

/** A token as soon as it is drawn; the result will have the same. */
export interface SampledToken {
  /** Index of its seed. */
  sequence: number;
  /** In the sequence. */
  index: number;
  token: number;
  policyLogprob: number;
  samplingLogprob: number;
}

/**
 * Called with all that a step drew for the call, each sequence's tokens in order, all of them before the call settles.
 * `stop(sequence, length)` ends that sequence after `length` tokens (at least one; stop reason 'stop'), as far as the
 * call still runs: what has been drawn beyond meanwhile may be in later news, and in the result of a call that ended
 * first. A listener that throws ends its own call, which rejects with what it threw.
 */
export type TokensListener = (
  tokens: readonly SampledToken[],
  stop: (sequence: number, length: number) => void,
) => void;

export interface SampleOptions {
  /** Cancels: the call rejects with `cancelled` and gives up its pages. */
  signal?: AbortSignal;
  onTokens?: TokensListener;
}

export type StopReason = 'stop' | 'length';

export interface SampledSequence {
  tokens: Int32Array;
  /** Temperature 1, unmasked: what the trainer recomputes, to the bit. */
  policyLogprobs: Float32Array;
  /** Of the distribution that was drawn from (temperature, top-k, top-p). */
  samplingLogprobs: Float32Array;
  stopReason: StopReason;
  /** Of each token, where `topLogprobs` asked for them. */
  top: TopTokens | null;
}

export interface SampleResult {
  /** In the order of the request's seeds. */
  sequences: SampledSequence[];
  promptLogprobs: Float32Array | null;
  /** Of prompt positions 1.., where `promptTopK` asked for them. */
  promptTop: TopTokens | null;
}

/**
 * One completion of a datum: `n` positions, one per token, with K targets each. Numbers of targets are row-major
 * [n, K]; what the loss does not use is null or absent.
 */
export interface Branch {
  /** The completion's token ids [n]: what is fed, and the targets where `targets` is null. */
  tokens: Int32Array;
  /** cross_entropy only: weight per target. */
  weights: Float32Array | null;
  /** The losses with advantages: recorded policy log-prob per target. */
  logprobs: Float32Array | null;
  /** importance_sampling, ppo, cispo, dro, gspo: advantage per target. */
  advantages: Float32Array | null;
  /** Target ids, any K >= 1 (gspo: 1); null = `tokens`, K = 1. One softmax per position, read at K ids. */
  targets?: Int32Array | null;
  /** given_gradient only: dL/dlogprob per target. */
  gradients?: Float32Array | null;
  /** gspo only, per position [n]: the sequence's ratio is over positions where it is not 0. */
  mask?: Float32Array | null;
}

/**
 * A prompt with one or more completions. Shared rows are the prompt without its last token; each branch's rows begin
 * with that token (position prompt.length - 1) and predict the branch's tokens one by one.
 */
export interface Datum {
  /** Non-empty token ids. */
  prompt: Int32Array;
  branches: readonly Branch[];
}

export const LOSS_NAMES = [
  'cross_entropy',
  'importance_sampling',
  'ppo',
  'cispo',
  'dro',
  'gspo',
  'given_gradient',
] as const;
export type LossName = (typeof LOSS_NAMES)[number];

/**
 * What is summed over targets, divided by nothing. lp = policy log-prob, q the recorded one, A the advantage, w the
 * weight, ratio = exp(lp - q); in the gradient, ratios that stand before lp or A are constants where the third column
 * says so.
 *
 * | name | term | d term / d lp |
 * |---|---|---|
 * | cross_entropy | -w lp | -w |
 * | importance_sampling | -ratio A | -ratio A |
 * | ppo | -min(ratio A, clip(ratio) A) | -ratio A where the unclipped one is the smaller, else 0 |
 * | cispo | -clip(ratio) A lp | -clip(ratio) A |
 * | dro | -(A lp - beta/2 (lp - q)^2) | -A + beta (lp - q) |
 * | gspo | as ppo, with one ratio per branch: exp(mean of lp - q over the mask) | as ppo |
 * | given_gradient | c lp | c, given by the caller |
 *
 * A target whose weight, advantage or c is 0 is no part of the sum, whatever its ratio; for dro that holds for the
 * quadratic term too. A gspo branch whose mask is all 0 has no terms.
 */
export interface Loss {
  name: LossName;
  /** ppo, cispo, gspo: absolute ratio thresholds, 0 <= clipLow <= clipHigh; null elsewhere. */
  clipLow: number | null;
  clipHigh: number | null;
  /** dro: strength of the pull to the recorded policy, 0 or more; null or absent elsewhere. */
  beta?: number | null;
}

export interface ForwardBackwardResult {
  /** Sum over datums, branches and positions (fp64). */
  lossSum: number;
  /** Policy log-prob per datum, branch, target [n * K]. */
  logprobs: Float32Array[][];
  /** Rows with a target. */
  tokens: number;
}

/** Hyper-parameters are fp64 and may change at every call. */
export interface AdamParams {
  learningRate: number;
  beta1: number;
  beta2: number;
  eps: number;
  weightDecay: number;
  /** 0 = no clipping. */
  gradClipNorm: number;
}

export interface OptimStepResult {
  /** Global L2 norm before clipping (fp64). */
  gradNorm: number;
  /** Number of optimizer steps this adapter has taken, this one included. */
  step: number;
}

export interface AdapterFile {
  path: string;
  /** SHA-256 hex of the file's bytes. */
  digest: string;
  bytes: number;
}

export interface EngineStats {
  /** Sampling steps executed, and those whose rows belonged to at least two different policies. */
  decodeSteps: number;
  mixedDecodeSteps: number;
  /** Rows summed over decode steps. */
  decodeRows: number;
  /** Training passes executed, and those that held sequences of at least two adapters. */
  trainPasses: number;
  mixedTrainPasses: number;
  /** Distinct adapters summed over training passes. */
  trainPassAdapters: number;
  tokensSampled: number;
  /** Rows of prompts, and of texts computed again. */
  tokensPrefilled: number;
  /** Rows of passes with a gradient, shared ones included. */
  tokensTrained: number;
  adapters: number;
  policies: number;
  activeSequences: number;
  /** Key/value pages in use. */
  kvBytes: number;
  /** Positions taken from the prefix cache, and those in whole blocks of texts that had to be computed. */
  prefixHitTokens: number;
  prefixMissTokens: number;
  /** Pages that hold blocks of the prefix cache, in use or idle; blocks given up for want of pages. */
  prefixPages: number;
  prefixEvictions: number;
  /** Sequences that gave up their pages to older ones, to compute their text again later. */
  preemptions: number;
  /** The sum of the first four of the memory below. */
  adapterBytes: number;

  /** Work by the formula of the cost of a row (native/src/engine/flops.h). */
  samplingFlops: number;
  trainingFlops: number;
  /** Most training that one sampling step has waited for while both had work. */
  maxDecodeWaitFlops: number;
  /** Times that waiting too long decided between sampling and training. */
  overdueServices: number;
  busyRefusals: number;
  pendingSamplingCalls: number;
  pendingSamplingTokens: number;
  pendingTrainingRows: number;
  /** Age of the oldest pending call, ms; 0 = none. */
  oldestSamplingMs: number;
  oldestTrainingMs: number;

  /** Memory by owner, bytes. A, B, m, v and gradient of live adapters: 16 r S each. */
  stateBytes: number;
  /** Gradients that calls in flight started from: 4 r S each. */
  inFlightBytes: number;
  /** Pinned A and B that no live adapter has any more: 4 r S each. */
  policyBytes: number;
  /** The executor's own forms of A and B, while in use. */
  packedBytes: number;
  /** Key/value pages used at least once: they are used again, never given back. */
  kvAllocatedBytes: number;
  /** Activations and scratch, grown to the largest plan so far, and freed blocks that the process keeps (up to an eighth of the machine's memory, at most 2 GiB). */
  scratchBytes: number;
  /** Data of pending training calls. */
  pendingDataBytes: number;
}

/** One adapter's part of the memory, bytes; words as in `EngineStats`. */
export interface AdapterMemory {
  stateBytes: number;
  inFlightBytes: number;
  policyBytes: number;
  packedBytes: number;
}

/** What one tenant had and has. */
export interface TenantStats {
  /** '' = calls that named no tenant. */
  tenant: string;
  weight: number;
  adapters: number;
  samplingFlops: number;
  trainingFlops: number;
  /** Steps in which it had rows, passes in which it had datums. */
  samplingSteps: number;
  trainingPasses: number;
  /** How far behind the most served tenant of the last plan, FLOPs / weight; 0 when it has no work. */
  samplingLag: number;
  trainingLag: number;
  /** Places in plans that it got because it had waited too long. */
  overdueServices: number;
  busyRefusals: number;
  pendingSamplingCalls: number;
  pendingSamplingTokens: number;
  pendingTrainingRows: number;
  pendingDataBytes: number;
}

export interface Engine {
  info(): EngineInfo;
  stats(): EngineStats;
  /**
   * state(0): B = 0, A drawn from the seed. `tenant` pays for what is done with the adapter and its policies; null or
   * absent = nobody in particular. @throws EngineFault `invalid_argument` naming the field.
   */
  createAdapter(spec: AdapterSpec, tenant?: string | null): Promise<AdapterHandle>;
  /** @throws EngineFault `invalid_argument` for an unknown handle, like every method that takes one. */
  specOf(adapter: AdapterHandle): AdapterSpec;
  /** Pending work of the adapter is rejected with `cancelled`; pinned policies stay valid. */
  dropAdapter(adapter: AdapterHandle): Promise<void>;
  /** Immutable copy of A and B as of all calls made on the adapter before this one. Copy-on-write: cheap. */
  pin(adapter: AdapterHandle): Promise<PolicyHandle>;
  /** Unknown handles are ignored. Running samples keep what they pinned. */
  release(policy: PolicyHandle): void;
  /**
   * Continuous batching: rows of any policies share steps. @throws EngineFault `out_of_memory` when one sequence does not
   * fit into kvCacheMiB, `not_finite`, and, like the training calls below, `busy` (see AdmissionLimits).
   */
  sample(request: SampleRequest, options?: SampleOptions): Promise<SampleResult>;
  /** Log-probs and loss only; `adapter` null = base, for which `tenant` pays. Does not change state. */
  forward(
    adapter: AdapterHandle | null,
    loss: Loss,
    datums: readonly Datum[],
    tenant?: string | null,
  ): Promise<ForwardBackwardResult>;
  /** Adds this call's gradient to the adapter's. @throws EngineFault `not_finite` (gradient as before). */
  forwardBackward(adapter: AdapterHandle, loss: Loss, datums: readonly Datum[]): Promise<ForwardBackwardResult>;
  /** AdamW on the accumulated gradient, then gradient = 0. @throws EngineFault `not_finite` (state unchanged). */
  optimStep(adapter: AdapterHandle, params: AdamParams): Promise<OptimStepResult>;
  /** SHA-256 hex of the whole training state at `opIndex` (decimal string); native/src/engine/state_digest.h has the rule. */
  stateDigest(adapter: AdapterHandle, opIndex: string): Promise<string>;
  /** SHA-256 hex of the canonical safetensors of A and B. */
  weightsDigest(policy: PolicyHandle): Promise<string>;
  /** Whole training state (A, B, m, v, gradient, step, spec) to a file: temporary name, fsync, rename, fsync folder. */
  snapshot(adapter: AdapterHandle, opIndex: string, path: string): Promise<AdapterFile>;
  /** A new adapter with exactly the snapshot's state. @throws EngineFault `invalid_file` | `base_mismatch`. */
  restore(
    path: string,
    tenant?: string | null,
  ): Promise<{ adapter: AdapterHandle; opIndex: string; spec: AdapterSpec }>;
  /** Canonical PEFT safetensors of A and B (`adapter_model.safetensors`), the file whose digest is weightsDigest. */
  exportWeights(policy: PolicyHandle, path: string): Promise<AdapterFile>;
  /** The text of PEFT's adapter_config.json for this policy. */
  peftConfig(policy: PolicyHandle): string;
  /** A new adapter from a PEFT folder; moments and gradient zero. Refuses unknown keys by name. */
  importPeft(
    folder: string,
    seed: string,
    tenant?: string | null,
  ): Promise<{ adapter: AdapterHandle; spec: AdapterSpec }>;
  /** Debug and tests: raw tensors by PEFT name for 'weight' | 'm' | 'v' | 'gradient'. */
  tensors(adapter: AdapterHandle, what: 'weight' | 'm' | 'v' | 'gradient'): Promise<Map<string, Float32Array>>;
  /** Full logits [vocabularySize] after the last token of the sequence; tests and the isolation benchmark. */
  logits(policy: PolicyHandle | null, tokens: Int32Array): Promise<Float32Array>;
  /** A tenant's part of contested work relative to others', 0.001..1000000, from the next plan on; 1 until it is set. */
  setTenantWeight(tenant: string, weight: number): void;
  /** Every tenant seen, as of the end of the running step. */
  tenants(): Promise<TenantStats[]>;
  /** As of the end of the running step. */
  adapterMemory(adapter: AdapterHandle): Promise<AdapterMemory>;
  /** Bytes of a policy's A and B, whoever else holds them. */
  policyBytes(policy: PolicyHandle): number;
  /** Waits for running work to stop, frees everything. Idempotent; later calls reject with `disposed`. */
  dispose(): Promise<void>;
}

/** Stable codes of engine errors; `retryable` says whether the same call may succeed later. */
export type EngineFaultCode =
  | 'invalid_argument'
  | 'invalid_file'
  | 'unsupported_model'
  | 'base_mismatch'
  | 'not_finite'
  | 'out_of_memory'
  | 'busy'
  | 'cancelled'
  | 'disposed'
  | 'unsupported_cpu'
  | 'io';
