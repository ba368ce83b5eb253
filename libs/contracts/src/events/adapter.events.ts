import { z } from 'zod';
import { adapterSpecSchema } from '../adapter-spec';
import { blobRefSchema } from '../blob-ref';
import { digestSchema, idSchema, nameSchema, u64Schema } from '../ids';
import { operationOriginSchema, operationSchema } from '../operation';

/** state(0) of the fold. Operation index 0. */
export const adapterCreated = z.object({
  adapterId: idSchema,
  name: nameSchema,
  spec: adapterSpecSchema,
  baseDigest: digestSchema,
  numericsId: z.string(),
  experimentId: idSchema.nullable(),
});
export type AdapterCreated = z.infer<typeof adapterCreated>;

/** Durable before anyone gets an answer; the accepted sequence alone determines the state. */
export const operationAccepted = z.object({
  adapterId: idSchema,
  /** 1, 2, 3, ...: n in state(n). */
  opIndex: u64Schema,
  operation: operationSchema,
  numericsId: z.string(),
  origin: operationOriginSchema,
});
export type OperationAccepted = z.infer<typeof operationAccepted>;

/** What applying it gave. `stateDigest` is that of state(opIndex): divergence shows at the step where it happens. */
export const operationApplied = z.object({
  adapterId: idSchema,
  opIndex: u64Schema,
  kind: z.enum(['forward_backward', 'optim_step', 'checkpoint']),
  workerId: idSchema,
  leaseEpoch: u64Schema,
  stateDigest: digestSchema,
  /** SHA-256 of the operation's outputs (log-probs little-endian fp32 in datum, branch, position order); null if none. */
  outputDigest: digestSchema.nullable(),
  metrics: z.object({
    lossSum: z.number().nullable(),
    tokens: z.number().int().nonnegative().nullable(),
    gradNorm: z.number().nullable(),
    step: z.number().int().nonnegative().nullable(),
  }),
});
export type OperationApplied = z.infer<typeof operationApplied>;

/** Only for a failure that is a function of (state, operation). A no-op of the fold. */
export const operationFailed = z.object({
  adapterId: idSchema,
  opIndex: u64Schema,
  kind: z.enum(['forward_backward', 'optim_step', 'checkpoint']),
  workerId: idSchema,
  leaseEpoch: u64Schema,
  stateDigest: digestSchema,
  code: z.string(),
  message: z.string(),
});

/** A named, persisted policy state. Its files are complete before the version exists, and never change. */
export const adapterCheckpointed = z.object({
  adapterId: idSchema,
  /** 1, 2, 3, ... per adapter. */
  version: z.number().int().positive(),
  opIndex: u64Schema,
  parentVersion: z.number().int().positive().nullable(),
  label: z.string().nullable(),
  spec: adapterSpecSchema,
  baseDigest: digestSchema,
  numericsId: z.string(),
  weightsDigest: digestSchema,
  stateDigest: digestSchema,
  /** PEFT's adapter_model.safetensors; its SHA-256 is weightsDigest. */
  weightsFile: blobRefSchema,
  /** PEFT's adapter_config.json. */
  configFile: blobRefSchema,
  /** The whole training state. */
  stateFile: blobRefSchema,
  workerId: idSchema,
  leaseEpoch: u64Schema,
});
export type AdapterCheckpointed = z.infer<typeof adapterCheckpointed>;
