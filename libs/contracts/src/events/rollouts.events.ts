import { z } from 'zod';
import { digestSchema, idSchema, u64Schema } from '../ids';
import { samplingSchema } from '../sampling';
import { tensorSchema } from '../tensor';
import { rewardSchema } from './experiment.events';

/** Where a prompt came from: a record of a data stream, at its stream version. */
export const recordRefSchema = z.object({ recordId: idSchema, dataStreamId: idSchema, streamVersion: u64Schema });

/**
 * Asks for completions from one pinned policy state. A function of its fields only: it may be answered by any worker,
 * at any time, twice, with the same tokens.
 */
export const rolloutsRequested = z.object({
  requestId: idSchema,
  purpose: z.enum(['training', 'sample']),
  /** null where a client asked. */
  experimentId: idSchema.nullable(),
  runOrdinal: z.number().int().nonnegative().nullable(),
  step: z.number().int().nonnegative().nullable(),
  /** null = the plain base; then opIndex is null too. */
  adapterId: idSchema.nullable(),
  opIndex: u64Schema.nullable(),
  baseDigest: digestSchema,
  numericsId: z.string(),
  prompts: z
    .array(
      z.object({
        promptIndex: z.number().int().nonnegative(),
        record: recordRefSchema.nullable(),
        subjectIds: z.array(z.string()),
        /** i32 [n >= 1] */
        tokens: tensorSchema,
        /** One per sample, in order of sample index. */
        seeds: z.array(u64Schema).min(1),
      }),
    )
    .min(1),
  sampling: samplingSchema,
  /** Who rewards the completions; null = nobody. */
  reward: rewardSchema.nullable(),
});
export type RolloutsRequested = z.infer<typeof rolloutsRequested>;

export const rolloutSchema = z.object({
  rolloutId: idSchema,
  sampleIndex: z.number().int().nonnegative(),
  /** i32 [n] */
  tokens: tensorSchema,
  /** f32 [n]: temperature 1, unmasked; what the trainer recomputes. */
  policyLogprobs: tensorSchema,
  /** f32 [n]: of the distribution that was drawn from. */
  samplingLogprobs: tensorSchema,
  stopReason: z.enum(['stop', 'length']),
});
export type Rollout = z.infer<typeof rolloutSchema>;

/** All completions of one prompt of a request, by sample index. */
export const rolloutsCompleted = z.object({
  requestId: idSchema,
  /** Stream version of RolloutsRequested in this stream. */
  requestVersion: u64Schema,
  promptIndex: z.number().int().nonnegative(),
  experimentId: idSchema.nullable(),
  adapterId: idSchema.nullable(),
  opIndex: u64Schema.nullable(),
  rollouts: z.array(rolloutSchema).min(1),
});
export type RolloutsCompleted = z.infer<typeof rolloutsCompleted>;

export const rolloutsFailed = z.object({
  requestId: idSchema,
  requestVersion: u64Schema,
  promptIndex: z.number().int().nonnegative().nullable(),
  experimentId: idSchema.nullable(),
  code: z.string(),
  message: z.string(),
});

/** Rewards of one prompt group, by sample index. */
export const rewardsAssigned = z.object({
  requestId: idSchema,
  requestVersion: u64Schema,
  completedVersion: u64Schema,
  promptIndex: z.number().int().nonnegative(),
  experimentId: idSchema.nullable(),
  /** Tokens of the completions together, so that whoever counts need not read them. */
  sampledTokens: z.number().int().nonnegative().optional(),
  /** Who gave them: verifier name and the digest of its settings. */
  source: z.object({ verifier: z.string(), configDigest: digestSchema }),
  rewards: z
    .array(
      z.object({
        rolloutId: idSchema,
        sampleIndex: z.number().int().nonnegative(),
        reward: z.number(),
        /** Whether the completion had the form that the verifier can judge. */
        valid: z.boolean(),
      }),
    )
    .min(1),
});
export type RewardsAssigned = z.infer<typeof rewardsAssigned>;

export const rewardsFailed = z.object({
  requestId: idSchema,
  requestVersion: u64Schema,
  completedVersion: u64Schema,
  promptIndex: z.number().int().nonnegative(),
  experimentId: idSchema.nullable(),
  code: z.string(),
  message: z.string(),
});
