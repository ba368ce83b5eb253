import { z } from 'zod';
import { digestSchema } from './ids';

/** A file in the content-addressed store of one tenant. */
export const blobRefSchema = z.object({
  digest: digestSchema,
  /** Bytes. */
  size: z.number().int().nonnegative(),
  mediaType: z.string(),
});
export type BlobRef = z.infer<typeof blobRefSchema>;

/** Payloads above this many canonical bytes go to the blob store as a whole; the event then holds `{ "$blob": BlobRef }`. */
export const PAYLOAD_LIMIT_BYTES = 256 * 1024;
