import { z } from 'zod';
import { digestSchema, idSchema, u64Schema } from '../ids';

export const workerStarted = z.object({
  workerId: idSchema,
  /** bigint identity: key of the worker's session advisory lock. */
  identity: u64Schema,
  processId: z.number().int().positive(),
});

export const baseModelLoaded = z.object({
  workerId: idSchema,
  /** Name of the model folder's last part, for people. */
  name: z.string(),
  baseDigest: digestSchema,
  numericsId: z.string(),
  architecture: z.string(),
  parameterCount: z.number().int().positive(),
  contextLength: z.number().int().positive(),
  tokenizerSize: z.number().int().positive(),
  /** SHA-256 of tokenizer.json; absent where the folder has none. Says whose text side this is, beyond the ids it defines. */
  tokenizerDigest: digestSchema.optional(),
  kernels: z.string(),
  threads: z.number().int().positive(),
});

export const leaseClaimed = z.object({ workerId: idSchema, resource: z.string(), epoch: u64Schema });

export const workerStopped = z.object({ workerId: idSchema, reason: z.string() });

/** The broker lost messages; they are published again from the log. */
export const relayRewound = z.object({
  jetStreamStream: z.string(),
  generation: z.string(),
  reason: z.enum(['tail_lost', 'purged', 'recreated', 'missing']),
  fromPosition: u64Schema,
});
