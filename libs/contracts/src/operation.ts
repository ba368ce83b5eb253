import { z } from 'zod';
import { idSchema, u64Schema } from './ids';
import { tensorSchema } from './tensor';

/** Absolute ratios, clipLow <= clipHigh. */
const clip = { clipLow: z.number().nonnegative(), clipHigh: z.number().nonnegative() };

/**
 * What is summed over targets; the engine's `Loss` has the formulas. Strict: a setting that this platform does not know
 * would change the result unseen if it were dropped.
 */
export const lossSchema = z.discriminatedUnion('name', [
  z.strictObject({ name: z.literal('cross_entropy') }),
  z.strictObject({ name: z.literal('importance_sampling') }),
  z.strictObject({ name: z.literal('ppo'), ...clip }),
  z.strictObject({ name: z.literal('cispo'), ...clip }),
  /** beta: strength of the pull to the recorded policy. */
  z.strictObject({ name: z.literal('dro'), beta: z.number().nonnegative().max(1e30) }),
  /** One ratio per branch, over the positions of its mask. */
  z.strictObject({ name: z.literal('gspo'), ...clip }),
  /** The client's own dL/dlogprob. */
  z.strictObject({ name: z.literal('given_gradient') }),
]);
export type LossPayload = z.infer<typeof lossSchema>;

/** The numbers of an inline branch that each loss takes; the others are null or absent. */
export const LOSS_BRANCH_FIELDS = {
  cross_entropy: ['weights'],
  importance_sampling: ['logprobs', 'advantages'],
  ppo: ['logprobs', 'advantages'],
  cispo: ['logprobs', 'advantages'],
  dro: ['logprobs', 'advantages'],
  gspo: ['logprobs', 'advantages', 'mask'],
  given_gradient: ['gradients'],
} as const satisfies Record<LossPayload['name'], readonly BranchField[]>;
export type BranchField = 'weights' | 'logprobs' | 'advantages' | 'gradients' | 'mask';

/** Whether a loss can learn from recorded rollouts, which carry advantages. */
export function takesAdvantages(loss: LossPayload['name']): boolean {
  return (LOSS_BRANCH_FIELDS[loss] as readonly BranchField[]).includes('advantages');
}

/**
 * Training data taken from recorded rollouts: refers to the tokens, never copies them. The prompt's tokens are in
 * RolloutsRequested (`requestVersion`), completions and recorded log-probs in RolloutsCompleted (`completedVersion`)
 * of `streamId`. Branches go by sample index.
 */
export const rolloutDatumSchema = z.object({
  source: z.literal('rollouts'),
  streamId: z.string(),
  requestVersion: u64Schema,
  completedVersion: u64Schema,
  promptIndex: z.number().int().nonnegative(),
  recordId: idSchema.nullable(),
  subjectIds: z.array(z.string()),
  branches: z.array(z.object({ rolloutId: idSchema, sampleIndex: z.number().int().nonnegative() })).min(1),
  /** f32 [branches]: one advantage per completion, used at each of its tokens. */
  advantages: tensorSchema,
});
export type RolloutDatum = z.infer<typeof rolloutDatumSchema>;

/**
 * Training data given by a client: everything inside. A branch has n positions, one per token, with K targets each;
 * strict, as the loss is.
 */
export const inlineDatumSchema = z.object({
  source: z.literal('inline'),
  recordId: idSchema.nullable(),
  subjectIds: z.array(z.string()),
  /** i32 [n >= 1] */
  prompt: tensorSchema,
  branches: z
    .array(
      z.strictObject({
        /** i32 [n]: what is fed, and the targets where `targets` is null or absent. */
        tokens: tensorSchema,
        /** f32, the shape of the targets ([n], or [n, K]); null or absent where the loss does not use it. */
        weights: tensorSchema.nullable(),
        logprobs: tensorSchema.nullable(),
        advantages: tensorSchema.nullable(),
        /** i32 [n] or [n, K], row-major; gspo takes one per position. */
        targets: tensorSchema.nullable().optional(),
        gradients: tensorSchema.nullable().optional(),
        /** f32 [n] */
        mask: tensorSchema.nullable().optional(),
      }),
    )
    .min(1),
});
export type InlineDatum = z.infer<typeof inlineDatumSchema>;

export const datumSchema = z.discriminatedUnion('source', [rolloutDatumSchema, inlineDatumSchema]);
export type DatumPayload = z.infer<typeof datumSchema>;

/** Hyper-parameters of one AdamW step, fp64. Strict, as the loss is. */
export const adamSchema = z.strictObject({
  learningRate: z.number().nonnegative().max(1e6),
  beta1: z.number().min(0).lt(1),
  beta2: z.number().min(0).lt(1),
  eps: z.number().min(1e-30).max(1),
  weightDecay: z.number().nonnegative().max(1e6),
  /** 0 = no clipping. */
  gradClipNorm: z.number().nonnegative().max(1e30),
});
export type AdamPayload = z.infer<typeof adamSchema>;

/** An entry of an adapter's stream that changes or saves its state. */
export const operationSchema = z.discriminatedUnion('kind', [
  z.object({ kind: z.literal('forward_backward'), loss: lossSchema, datums: z.array(datumSchema).min(1) }),
  z.object({ kind: z.literal('optim_step'), adam: adamSchema }),
  z.object({ kind: z.literal('checkpoint'), label: z.string().max(200).nullable() }),
]);
export type Operation = z.infer<typeof operationSchema>;
export type OperationKind = Operation['kind'];

/** Who proposed an operation. */
export const operationOriginSchema = z.discriminatedUnion('kind', [
  z.object({
    kind: z.literal('experiment'),
    experimentId: idSchema,
    runOrdinal: z.number().int().nonnegative(),
    step: z.number().int().nonnegative(),
  }),
  z.object({ kind: z.literal('client'), sessionId: z.string() }),
]);
