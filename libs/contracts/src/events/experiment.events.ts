import { z } from 'zod';
import { adapterSpecSchema } from '../adapter-spec';
import { digestSchema, idSchema, nameSchema, u64Schema } from '../ids';
import { adamSchema, lossSchema } from '../operation';
import { samplingSchema } from '../sampling';

/** Group-relative policy optimisation: prompts x samples a step, group-normalised advantages. */
export const grpoSchema = z.object({
  kind: z.literal('grpo'),
  /** Optimizer steps of one training run. */
  stepsPerRun: z.number().int().min(1).max(1_000_000),
  promptsPerStep: z.number().int().min(1).max(1024),
  samplesPerPrompt: z.number().int().min(2).max(1024),
  loss: lossSchema,
  adam: adamSchema,
  /** linear: falls from learningRate to learningRate * finalFraction over a run's steps. */
  schedule: z.discriminatedUnion('kind', [
    z.object({ kind: z.literal('constant') }),
    z.object({ kind: z.literal('linear'), finalFraction: z.number().min(0).max(1) }),
  ]),
  sampling: samplingSchema,
});
export type GrpoPayload = z.infer<typeof grpoSchema>;

/** Names a verifier of the rewarder and its settings; the verifier's own schema checks `config`. */
export const rewardSchema = z.object({
  verifier: z.string().min(1).max(64),
  config: z.record(z.string(), z.json()),
});
export type RewardPayload = z.infer<typeof rewardSchema>;

/** Most records of one window: what one look at the waiting records reads. */
export const WINDOW_RECORDS = 100_000;

/** When new records start a training run. Part of ExperimentCreated; `ingest` projects it and owns the cursor. */
export const triggerSchema = z.discriminatedUnion('kind', [
  z.object({ kind: z.literal('count'), records: z.number().int().min(1).max(WINDOW_RECORDS) }),
  z.object({ kind: z.literal('interval'), everyMs: z.number().int().min(1000) }),
  z.object({ kind: z.literal('manual') }),
]);
export type TriggerPayload = z.infer<typeof triggerSchema>;

export const experimentCreated = z.object({
  experimentId: idSchema,
  name: nameSchema,
  adapterId: idSchema,
  adapterName: nameSchema,
  dataStreamId: idSchema,
  baseDigest: digestSchema,
  numericsId: z.string(),
  adapterSpec: adapterSpecSchema,
  algorithm: grpoSchema,
  reward: rewardSchema,
  trigger: triggerSchema,
  /** A version every so many steps, and one at the end of each run. */
  checkpointEverySteps: z.number().int().positive(),
  /** Seeds every rollout of the experiment. */
  seed: u64Schema,
});
export type ExperimentCreated = z.infer<typeof experimentCreated>;

const experimentRef = z.object({ experimentId: idSchema });
export const experimentStarted = experimentRef;
export const experimentPaused = experimentRef.extend({ reason: z.string() });
export const experimentResumed = experimentRef;
export const experimentCompleted = experimentRef.extend({ reason: z.string() });
export const experimentFailed = experimentRef.extend({ code: z.string(), message: z.string() });
export const experimentCancelled = experimentRef.extend({ reason: z.string() });

const windowSchema = z.object({ dataStreamId: idSchema, from: u64Schema, to: u64Schema });

export const trainingRunStarted = experimentRef.extend({
  runOrdinal: z.number().int().nonnegative(),
  triggerId: idSchema,
  window: windowSchema,
  records: z.number().int().positive(),
  /** The adapter's newest operation when the run began. */
  fromOpIndex: u64Schema,
});

export const STEP_SKIPPED = ['no_variance', 'no_valid_answer'] as const;

/** One step's batch was decided: the operations it issued, or why it issued none. */
export const trainingStepCompleted = experimentRef.extend({
  runOrdinal: z.number().int().nonnegative(),
  step: z.number().int().nonnegative(),
  requestId: idSchema,
  /** Policy state that the rollouts were sampled from. */
  policyOpIndex: u64Schema,
  /** The adapter's newest accepted operation after this step. */
  acceptedOpIndex: u64Schema,
  rollouts: z.number().int().positive(),
  rewardMean: z.number(),
  groups: z.number().int().positive(),
  groupsWithVariance: z.number().int().nonnegative(),
  validAnswers: z.number().int().nonnegative(),
  sampledTokens: z.number().int().nonnegative(),
  learningRate: z.number().nonnegative(),
  skipped: z.enum(STEP_SKIPPED).nullable(),
});

export const trainingRunCompleted = experimentRef.extend({
  runOrdinal: z.number().int().nonnegative(),
  steps: z.number().int().positive(),
  finalOpIndex: u64Schema,
  stateDigest: digestSchema,
});
