import { createHash } from 'node:crypto';
import { v5 as uuidv5, v7 as uuidv7 } from 'uuid';
import { z } from 'zod';

/** Ids are UUIDv7 and never reused. */
export const idSchema = z.uuid();
export const newId = (): string => uuidv7();

/** Events about the platform itself belong to this tenant. */
export const SYSTEM_TENANT_ID = '00000000-0000-0000-0000-000000000000';

/** Names are unique per tenant and kind; they never enter subjects, seeds, digests or cache keys. */
export const nameSchema = z
  .string()
  .regex(/^[a-z0-9][a-z0-9._-]{0,62}$/, 'expected 1..63 of a-z 0-9 . _ - beginning with a letter or digit');

/** An alias of a version. All digits would read as a version number: `<adapter>@7` is version 7. */
export const aliasSchema = nameSchema.refine(
  (alias) => !/^[0-9]+$/.test(alias),
  'expected a name that is not all digits: adapter@7 means version 7',
);

/** Positions, stream versions, operation indices, seeds: unsigned 64-bit integers as decimal strings. */
export const u64Schema = z
  .string()
  .regex(/^(0|[1-9][0-9]{0,19})$/, {
    error: 'expected an unsigned 64-bit integer as a decimal string',
    // What follows reads it as a number.
    abort: true,
  })
  .refine((s) => BigInt(s) <= 0xffffffffffffffffn, 'exceeds 64 bits');

/** Lower-case hex SHA-256. */
export const digestSchema = z.string().regex(/^[0-9a-f]{64}$/, 'expected 64 lower-case hex digits');

/** uuidv5(request, prompt index, sample index): the same request gives the same rollout ids wherever it runs. */
export function rolloutId(requestId: string, promptIndex: number, sampleIndex: number): string {
  return uuidv5(`${promptIndex}/${sampleIndex}`, requestId);
}

/** Deterministic id below another id, for effects that must not happen twice. */
export function derivedId(parentId: string, label: string): string {
  return uuidv5(label, parentId);
}

/**
 * Seed of a managed rollout: the first 8 bytes, little-endian, of SHA-256('hotbed.seed.1' || u64 experiment seed ||
 * u32 run ordinal || u32 step || u32 prompt index || u32 sample index), integers big-endian. No id and no name enters,
 * so the same experiment run elsewhere draws the same tokens.
 */
export function rolloutSeed(
  experimentSeed: string,
  runOrdinal: number,
  step: number,
  promptIndex: number,
  sampleIndex: number,
): string {
  const numbers = Buffer.alloc(24);
  numbers.writeBigUInt64BE(BigInt(experimentSeed), 0);
  numbers.writeUInt32BE(runOrdinal, 8);
  numbers.writeUInt32BE(step, 12);
  numbers.writeUInt32BE(promptIndex, 16);
  numbers.writeUInt32BE(sampleIndex, 20);
  const digest = createHash('sha256').update('hotbed.seed.1').update(numbers).digest();
  return digest.readBigUInt64LE(0).toString();
}
