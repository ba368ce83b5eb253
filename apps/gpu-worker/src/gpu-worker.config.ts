import { resolve } from 'node:path';
import { z } from 'zod';
import { DEFAULT_ENGINE_OPTIONS, KERNEL_PATHS, NUMERICS_IDS, type EngineOptions } from '#hotbed/engine';
import {
  blobConfigShape,
  databaseConfigShape,
  integerVariable,
  loadConfig,
  natsConfigShape,
  toBlobFolder,
  toNatsConfig,
  type NatsConfig,
} from '#hotbed/runtime';
import { parseFailpoints, type FailpointName } from './failpoint/failpoints';

export interface GpuWorkerConfig {
  engine: EngineOptions;
  databaseUrl: string;
  nats: NatsConfig;
  /** Stable over restarts, one per worker. */
  workerName: string;
  blobFolder: string;
  worker: {
    pollIntervalMs: number;
    leaseTtlMs: number;
    adapterMemoryBytes: number;
    policyMemoryBytes: number;
  };
  /** Parts of contested work by tenant; 1 for those that are not named. */
  tenantWeights: ReadonlyMap<string, number>;
  failpoints: ReadonlyMap<FailpointName, number>;
}

const MIB = 1024 * 1024;

/** Failpoints end the process: they are for tests and nowhere else. */
const failpointsVariable = (env: NodeJS.ProcessEnv) =>
  z
    .string()
    .default('')
    .transform((text, context) => {
      try {
        return parseFailpoints(text);
      } catch (error) {
        context.addIssue({ code: 'custom', message: (error as Error).message });
        return z.NEVER;
      }
    })
    .refine((points) => points.size === 0 || env['NODE_ENV'] === 'test', 'is honoured only with NODE_ENV=test');

/** `<tenant id>=<weight>,...`. */
const tenantWeightsVariable = z
  .string()
  .regex(
    /^([0-9A-Za-z-]+=([1-9][0-9]{0,5}|0\.[0-9]{0,2}[1-9])(,|$))*$/,
    'expected <tenant id>=<weight>, separated by commas; weights from 0.001 to 999999',
  )
  .default('')
  .transform((text) => {
    const pairs = text.split(',').filter((pair) => pair !== '');
    return new Map(pairs.map((pair) => [pair.split('=')[0] ?? '', Number(pair.split('=')[1])]));
  });

/** A part of the whole: 0..1. */
const partVariable = z
  .string()
  .regex(/^(0|1|0?\.[0-9]+)$/, 'expected a part from 0 to 1')
  .transform(Number);
const limitVariable = integerVariable(1, Number.MAX_SAFE_INTEGER);
const { total: TOTAL, perTenant: PER_TENANT } = DEFAULT_ENGINE_OPTIONS.limits;

/** What decides how the engine runs; every program that opens one reads these. */
const engineConfigShape = {
  HOTBED_BASE_MODEL: z.string().min(1),
  HOTBED_NUMERICS: z.enum(NUMERICS_IDS).default(DEFAULT_ENGINE_OPTIONS.numerics),
  HOTBED_KERNELS: z.enum(['auto', ...KERNEL_PATHS]).default('auto'),
  HOTBED_ENGINE_THREADS: integerVariable(1, 1024).optional(),
  HOTBED_KV_CACHE_MIB: integerVariable(1, 1 << 20).default(DEFAULT_ENGINE_OPTIONS.kvCacheMiB),
  HOTBED_ENGINE_ACTIVATION_MIB: integerVariable(1, 1 << 20).default(DEFAULT_ENGINE_OPTIONS.activationBudgetMiB),
  HOTBED_DECODE_FLOOR: partVariable.default(DEFAULT_ENGINE_OPTIONS.scheduling.decodeFloor),
  HOTBED_TRAINING_FLOOR: partVariable.default(DEFAULT_ENGINE_OPTIONS.scheduling.trainingFloor),
  HOTBED_MAX_WAIT_GFLOP: integerVariable(1, 1_000_000_000).default(DEFAULT_ENGINE_OPTIONS.scheduling.maxWaitGflop),
  HOTBED_MAX_SAMPLING_CALLS: limitVariable.default(TOTAL.samplingCalls),
  HOTBED_MAX_SAMPLING_TOKENS: limitVariable.default(TOTAL.samplingTokens),
  HOTBED_MAX_TRAINING_ROWS: limitVariable.default(TOTAL.trainingRows),
  HOTBED_MAX_TRAINING_MIB: integerVariable(1, 1 << 20).default(TOTAL.trainingMiB),
  HOTBED_TENANT_MAX_SAMPLING_CALLS: limitVariable.default(PER_TENANT.samplingCalls),
  HOTBED_TENANT_MAX_SAMPLING_TOKENS: limitVariable.default(PER_TENANT.samplingTokens),
  HOTBED_TENANT_MAX_TRAINING_ROWS: limitVariable.default(PER_TENANT.trainingRows),
  HOTBED_TENANT_MAX_TRAINING_MIB: integerVariable(1, 1 << 20).default(PER_TENANT.trainingMiB),
};

type EngineValues = { [Name in keyof typeof engineConfigShape]: z.output<(typeof engineConfigShape)[Name]> };

/** @throws ConfigError naming every wrong variable. */
export function loadGpuWorkerConfig(env: NodeJS.ProcessEnv): GpuWorkerConfig {
  return loadConfig(
    {
      ...engineConfigShape,
      ...databaseConfigShape,
      ...natsConfigShape,
      ...blobConfigShape,
      HOTBED_ADAPTER_MEMORY_MIB: integerVariable(1, 1 << 20).default(2048),
      HOTBED_POLICY_MEMORY_MIB: integerVariable(1, 1 << 20).default(1024),
      HOTBED_TENANT_WEIGHTS: tenantWeightsVariable,
      HOTBED_WORKER_POLL_MS: integerVariable(10, 60_000).default(1000),
      HOTBED_LEASE_TTL_MS: integerVariable(500, 600_000).default(15_000),
      HOTBED_WORKER_NAME: z
        .string()
        .regex(/^[A-Za-z0-9_-]{1,64}$/, 'expected 1..64 letters, digits, _ or -')
        .default('worker-1'),
      HOTBED_FAILPOINTS: failpointsVariable(env),
    },
    (values): GpuWorkerConfig => ({
      engine: toEngineOptions(values),
      databaseUrl: values.HOTBED_DATABASE_URL,
      nats: toNatsConfig(values, 'gpu-worker'),
      workerName: values.HOTBED_WORKER_NAME,
      blobFolder: toBlobFolder(values),
      worker: {
        pollIntervalMs: values.HOTBED_WORKER_POLL_MS,
        leaseTtlMs: values.HOTBED_LEASE_TTL_MS,
        adapterMemoryBytes: values.HOTBED_ADAPTER_MEMORY_MIB * MIB,
        policyMemoryBytes: values.HOTBED_POLICY_MEMORY_MIB * MIB,
      },
      tenantWeights: values.HOTBED_TENANT_WEIGHTS,
      failpoints: values.HOTBED_FAILPOINTS,
    }),
    env,
  );
}

function toEngineOptions(values: EngineValues): EngineOptions {
  return {
    modelFolder: resolve(values.HOTBED_BASE_MODEL),
    numerics: values.HOTBED_NUMERICS,
    kernels: values.HOTBED_KERNELS === 'auto' ? null : values.HOTBED_KERNELS,
    threads: values.HOTBED_ENGINE_THREADS ?? null,
    kvCacheMiB: values.HOTBED_KV_CACHE_MIB,
    activationBudgetMiB: values.HOTBED_ENGINE_ACTIVATION_MIB,
    // Decode of every adapter shares one weight read with a prefill chunk; a training pass of so many rows already
    // runs at the linear kernels' full speed.
    maxStepRows: DEFAULT_ENGINE_OPTIONS.maxStepRows,
    maxTrainRows: DEFAULT_ENGINE_OPTIONS.maxTrainRows,
    scheduling: {
      decodeFloor: values.HOTBED_DECODE_FLOOR,
      trainingFloor: values.HOTBED_TRAINING_FLOOR,
      maxWaitGflop: values.HOTBED_MAX_WAIT_GFLOP,
    },
    limits: {
      total: {
        samplingCalls: values.HOTBED_MAX_SAMPLING_CALLS,
        samplingTokens: values.HOTBED_MAX_SAMPLING_TOKENS,
        trainingRows: values.HOTBED_MAX_TRAINING_ROWS,
        trainingMiB: values.HOTBED_MAX_TRAINING_MIB,
      },
      perTenant: {
        samplingCalls: values.HOTBED_TENANT_MAX_SAMPLING_CALLS,
        samplingTokens: values.HOTBED_TENANT_MAX_SAMPLING_TOKENS,
        trainingRows: values.HOTBED_TENANT_MAX_TRAINING_ROWS,
        trainingMiB: values.HOTBED_TENANT_MAX_TRAINING_MIB,
      },
    },
  };
}

/** What it takes to derive a version again: an engine and the log, no broker. */
export interface RederiveConfig {
  engine: EngineOptions;
  databaseUrl: string;
  blobFolder: string;
}

/** @throws ConfigError naming every wrong variable. */
export function loadRederiveConfig(env: NodeJS.ProcessEnv): RederiveConfig {
  return loadConfig(
    {
      ...engineConfigShape,
      ...databaseConfigShape,
      ...blobConfigShape,
    },
    (values): RederiveConfig => ({
      engine: toEngineOptions(values),
      databaseUrl: values.HOTBED_DATABASE_URL,
      blobFolder: toBlobFolder(values),
    }),
    env,
  );
}
