import { z } from 'zod';
import { idSchema, nameSchema, u64Schema } from '../ids';
import { pageSchema, refSchema } from './paging';

export const dataStreamViewSchema = z.object({
  dataStreamId: idSchema,
  name: nameSchema,
  records: z.number().int().nonnegative(),
  rejected: z.number().int().nonnegative(),
  /** Stream version of the newest event. */
  version: u64Schema,
  /** JetStream subject that this stream's producer publishes on. */
  subject: z.string(),
  createdAtMs: z.number().int(),
});
export type DataStreamView = z.infer<typeof dataStreamViewSchema>;

export const recordOutcomeSchema = z.discriminatedUnion('outcome', [
  z.object({ outcome: z.literal('received'), recordId: idSchema, streamVersion: u64Schema }),
  /** The producer's key was seen before: same record, nothing added. */
  z.object({ outcome: z.literal('duplicate'), recordId: idSchema }),
]);

export const INGEST_COMMANDS = {
  'create-data-stream': {
    request: z.strictObject({ name: nameSchema, idempotencyKey: z.string().max(256).nullable().default(null) }),
    reply: dataStreamViewSchema,
  },
  'get-data-stream': { request: z.strictObject({ dataStream: refSchema }), reply: dataStreamViewSchema },
  'list-data-streams': {
    request: z.strictObject({ page: pageSchema.default({ limit: 100, after: null }) }),
    reply: z.object({ dataStreams: z.array(dataStreamViewSchema), next: z.string().nullable() }),
  },
  /** All records of one call are taken or none is; a record that fails its schema names its index and field. */
  'append-records': {
    request: z.strictObject({
      dataStream: refSchema,
      records: z
        .array(z.strictObject({ key: z.string().min(1).max(256).nullable().default(null), content: z.unknown() }))
        .min(1)
        .max(1000),
    }),
    reply: z.object({ records: z.array(recordOutcomeSchema) }),
  },
  'list-records': {
    request: z.strictObject({ dataStream: refSchema, page: pageSchema.default({ limit: 100, after: null }) }),
    reply: z.object({
      records: z.array(
        z.object({
          recordId: idSchema,
          streamVersion: u64Schema,
          prompt: z.string(),
          answer: z.string().nullable(),
          receivedAtMs: z.number().int(),
        }),
      ),
      next: z.string().nullable(),
    }),
  },
  /** Triggers a training run over all records not yet used by the experiment. IllegalState `no_new_records`. */
  'trigger-training': {
    request: z.strictObject({ experiment: refSchema }),
    reply: z.object({ triggerId: idSchema, from: u64Schema, to: u64Schema, records: z.number().int().positive() }),
  },
} as const;
