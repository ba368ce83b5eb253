import { z } from 'zod';
import { adapterSpecSchema } from '../adapter-spec';
import { adamSchema } from '../operation';
import { grpoSchema, rewardSchema, triggerSchema } from '../events/experiment.events';
import { aliasSchema, digestSchema, idSchema, nameSchema, u64Schema } from '../ids';
import { samplingSchema } from '../sampling';
import { pageSchema, refSchema } from './paging';

export const EXPERIMENT_STATES = ['idle', 'training', 'paused', 'completed', 'failed', 'cancelled'] as const;

/** Why learning does not move; null = it does, or too early to say. */
export const STALL_REASONS = [
  'groups_without_variance',
  'no_valid_answer',
  'not_finite',
  'waiting_for_worker',
] as const;

export const experimentSummarySchema = z.object({
  experimentId: idSchema,
  name: nameSchema,
  state: z.enum(EXPERIMENT_STATES),
  adapterId: idSchema,
  adapterName: nameSchema,
  dataStreamId: idSchema,
  runs: z.number().int().nonnegative(),
  /** Steps of the current (or last) run. */
  step: z.number().int().nonnegative(),
  stepsPerRun: z.number().int().positive(),
  totalSteps: z.number().int().nonnegative(),
  rewardMean: z.number().nullable(),
  latestVersion: z.number().int().positive().nullable(),
  stalled: z.enum(STALL_REASONS).nullable(),
  failure: z.object({ code: z.string(), message: z.string() }).nullable(),
  createdAtMs: z.number().int(),
});
export type ExperimentSummary = z.infer<typeof experimentSummarySchema>;

export const experimentStepSchema = z.object({
  runOrdinal: z.number().int().nonnegative(),
  step: z.number().int().nonnegative(),
  rewardMean: z.number(),
  groupsWithVariance: z.number().int().nonnegative(),
  groups: z.number().int().positive(),
  validAnswers: z.number().int().nonnegative(),
  rollouts: z.number().int().positive(),
  sampledTokens: z.number().int().nonnegative(),
  learningRate: z.number(),
  skipped: z.string().nullable(),
  completedAtMs: z.number().int(),
});

export const exampleRolloutSchema = z.object({
  rolloutId: idSchema,
  step: z.number().int().nonnegative(),
  prompt: z.string(),
  completion: z.string(),
  answer: z.string().nullable(),
  reward: z.number(),
  valid: z.boolean(),
});

export const experimentViewSchema = experimentSummarySchema.extend({
  adapterSpec: adapterSpecSchema,
  algorithm: grpoSchema,
  reward: rewardSchema,
  trigger: triggerSchema,
  checkpointEverySteps: z.number().int().positive(),
  seed: u64Schema,
  baseDigest: digestSchema,
  steps: z.array(experimentStepSchema),
  examples: z.array(exampleRolloutSchema),
});
export type ExperimentView = z.infer<typeof experimentViewSchema>;

/** Rollouts of one step: they are one durable request, and a cancelled experiment still has its last one answered. */
export const MAX_STEP_ROLLOUTS = 16_384;

/** Same defaults for every door: CLI, HTTP, NATS. */
export const createExperimentRequest = z
  .strictObject({
    name: nameSchema,
    /** Data stream by name or id. */
    dataStream: refSchema,
    /** Base by name or digest, `@<numerics id>` behind it where one other than f32-1 is meant; null = the only one loaded. */
    base: z.string().max(128).nullable().default(null),
    /** Name of the adapter; null = the experiment's name. */
    adapter: nameSchema.nullable().default(null),
    rank: z.number().int().min(1).max(256).default(8),
    alpha: adapterSpecSchema.shape.alpha.default(16),
    rslora: z.boolean().default(false),
    /** lm_head on demand: it is as large as all the others of a small model. */
    targets: adapterSpecSchema.shape.targets.default(['q', 'k', 'v', 'o', 'gate', 'up', 'down']),
    seed: u64Schema.default('0'),
    steps: z.number().int().min(1).max(1_000_000).default(50),
    promptsPerStep: z.number().int().min(1).max(1024).default(8),
    samplesPerPrompt: z.number().int().min(2).max(1024).default(8),
    loss: grpoSchema.shape.loss.default({ name: 'importance_sampling' }),
    learningRate: z.number().positive().max(1).default(3e-3),
    schedule: grpoSchema.shape.schedule.default({ kind: 'constant' }),
    beta1: z.number().min(0).lt(1).default(0.9),
    beta2: z.number().min(0).lt(1).default(0.95),
    eps: adamSchema.shape.eps.default(1e-8),
    weightDecay: adamSchema.shape.weightDecay.default(0),
    gradClipNorm: adamSchema.shape.gradClipNorm.default(1),
    temperature: samplingSchema.shape.temperature
      .refine((t) => t > 0, 'expected more than 0: training needs chance')
      .default(1),
    topK: samplingSchema.shape.topK.default(0),
    topP: z.number().positive().max(1).default(1),
    maxTokens: z.number().int().positive().max(65536).default(32),
    stopStrings: samplingSchema.shape.stopStrings,
    reward: z.strictObject({ verifier: rewardSchema.shape.verifier, config: rewardSchema.shape.config.default({}) }),
    trigger: triggerSchema.default({ kind: 'manual' }),
    checkpointEverySteps: z.number().int().positive().default(10),
    idempotencyKey: z.string().max(256).nullable().default(null),
  })
  .refine((e) => e.promptsPerStep * e.samplesPerPrompt <= MAX_STEP_ROLLOUTS, {
    path: ['samplesPerPrompt'],
    message: `a step may have at most ${MAX_STEP_ROLLOUTS} rollouts (promptsPerStep x samplesPerPrompt)`,
  });
export type CreateExperimentRequest = z.infer<typeof createExperimentRequest>;

const experimentRef = z.strictObject({ experiment: refSchema });

export const ORCHESTRATOR_COMMANDS = {
  'create-experiment': { request: createExperimentRequest, reply: experimentSummarySchema },
  'pause-experiment': { request: experimentRef, reply: experimentSummarySchema },
  'resume-experiment': { request: experimentRef, reply: experimentSummarySchema },
  'cancel-experiment': { request: experimentRef, reply: experimentSummarySchema },
  'get-experiment': { request: experimentRef, reply: experimentViewSchema },
  'list-experiments': {
    request: z.strictObject({ page: pageSchema.default({ limit: 100, after: null }) }),
    reply: z.object({ experiments: z.array(experimentSummarySchema), next: z.string().nullable() }),
  },
  /**
   * Appends RolloutsRequested (purpose `sample`) and answers at once; the caller waits for RolloutsCompleted of
   * `streamId` (one event per prompt). Prompts as text are encoded with the base's tokenizer.
   */
  'request-samples': {
    request: z.strictObject({
      /** null = the plain base. */
      adapterId: idSchema.nullable(),
      opIndex: u64Schema.nullable(),
      prompts: z.array(z.string().min(1).max(65536)).min(1).max(256),
      samplesPerPrompt: z.number().int().min(1).max(64).default(1),
      seed: u64Schema.nullable().default(null),
      sampling: samplingSchema.partial().default({}),
    }),
    reply: z.object({
      requestId: idSchema,
      streamId: z.string(),
      requestVersion: u64Schema,
      prompts: z.number().int().positive(),
    }),
  },
  /** Turns recorded completions of a sample request into text. IllegalState `not_complete` while some are missing. */
  'read-samples': {
    request: z.strictObject({
      requestId: idSchema,
      streamId: z.string(),
      /** Of the answer to `request-samples`; null = the stream is searched from its beginning. */
      requestVersion: u64Schema.nullable().default(null),
    }),
    reply: z.object({
      prompts: z.array(
        z.object({
          promptIndex: z.number().int().nonnegative(),
          prompt: z.string(),
          completions: z.array(
            z.object({
              rolloutId: idSchema,
              text: z.string(),
              tokens: z.array(z.number().int()),
              logprobs: z.array(z.number()),
              stopReason: z.enum(['stop', 'length']),
            }),
          ),
        }),
      ),
    }),
  },
  'move-alias': {
    request: z.strictObject({
      adapter: refSchema,
      alias: aliasSchema,
      version: z.number().int().positive(),
      reason: z.string().max(1000).default(''),
    }),
    reply: z.object({ adapterId: idSchema, alias: nameSchema, version: z.number().int().positive() }),
  },
} as const;
