import { z } from 'zod';
import { u64Schema } from './ids';

export const TARGET_MODULE_NAMES = ['q', 'k', 'v', 'o', 'gate', 'up', 'down', 'lm_head'] as const;

/** What an adapter is made from. Two equal specs on one base give equal bytes. */
export const adapterSpecSchema = z.object({
  rank: z.number().int().min(1).max(256),
  alpha: z.number().min(1e-6).max(65536),
  rslora: z.boolean(),
  /** In the order of TARGET_MODULE_NAMES, no duplicates. */
  targets: z
    .array(z.enum(TARGET_MODULE_NAMES))
    .min(1)
    .refine((t) => new Set(t).size === t.length, 'names a module twice')
    .transform((t) => TARGET_MODULE_NAMES.filter((name) => t.includes(name))),
  seed: u64Schema,
});
export type AdapterSpecPayload = z.infer<typeof adapterSpecSchema>;

/** SHA-256 of the base by content, and the numerics contract: replay refuses other values. */
export const baseIdentitySchema = z.object({ baseDigest: z.string(), numericsId: z.string() });
