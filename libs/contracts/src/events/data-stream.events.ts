import { z } from 'zod';
import { idSchema, nameSchema, u64Schema } from '../ids';

/** A record's identity is the producer's key, else the broker's generation and sequence; never its content. */
export const recordIdentitySchema = z.discriminatedUnion('kind', [
  z.object({ kind: z.literal('key'), key: z.string().min(1).max(256) }),
  z.object({ kind: z.literal('broker'), generation: z.string(), sequence: u64Schema }),
]);
export type RecordIdentity = z.infer<typeof recordIdentitySchema>;

/** What a producer sends as one record. */
export const recordContentSchema = z.strictObject({
  /** Non-empty text that the model is asked to continue. */
  prompt: z.string().min(1).max(65536),
  /** The expected answer, where a verifier compares with one. */
  answer: z.string().max(65536).nullable().default(null),
  /** Whose data this is; lineage and erasure read it. */
  subjectIds: z.array(z.string().min(1).max(256)).max(64).default([]),
  metadata: z.record(z.string().max(64), z.string().max(1024)).default({}),
});
export type RecordContent = z.infer<typeof recordContentSchema>;

export const dataStreamCreated = z.object({ dataStreamId: idSchema, name: nameSchema });

export const recordReceived = z.object({
  recordId: idSchema,
  dataStreamId: idSchema,
  identity: recordIdentitySchema,
  content: recordContentSchema,
});

export const recordRejected = z.object({
  dataStreamId: idSchema,
  identity: recordIdentitySchema,
  problems: z.array(z.object({ path: z.string(), message: z.string() })).min(1),
});

export const TRIGGER_CAUSES = ['count', 'interval', 'manual'] as const;

/** Starts a training run over the records in stream versions `from`..`to`, both inclusive. */
export const trainingTriggered = z.object({
  triggerId: idSchema,
  experimentId: idSchema,
  dataStreamId: idSchema,
  from: u64Schema,
  to: u64Schema,
  /** Records (not events) inside the window. */
  records: z.number().int().positive(),
  cause: z.enum(TRIGGER_CAUSES),
});
