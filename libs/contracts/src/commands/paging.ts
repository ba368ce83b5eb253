import { z } from 'zod';

/** Asks for `limit` rows after an opaque cursor (the `next` of the page before). */
export const pageSchema = z.strictObject({
  limit: z.number().int().min(1).max(1000).default(100),
  after: z.string().max(256).nullable().default(null),
});
export type Page = z.infer<typeof pageSchema>;

/** A thing by name or id. */
export const refSchema = z.string().min(1).max(128);
