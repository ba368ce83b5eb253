import { z } from 'zod';
import { aliasSchema, digestSchema, idSchema, nameSchema } from '../ids';

export const aliasMoved = z.object({
  adapterId: idSchema,
  alias: aliasSchema,
  version: z.number().int().positive(),
  previousVersion: z.number().int().positive().nullable(),
  reason: z.string(),
});
export type AliasMoved = z.infer<typeof aliasMoved>;

export const tenantCreated = z.object({ tenantId: idSchema, name: nameSchema });

export const API_KEY_ROLES = ['admin', 'member'] as const;

/** Only the key's SHA-256 is kept. `admin` keys may create tenants; `member` keys act inside their tenant. */
export const apiKeyIssued = z.object({
  keyId: idSchema,
  tenantId: idSchema,
  role: z.enum(API_KEY_ROLES),
  keyDigest: digestSchema,
  label: z.string().max(200),
});

export const apiKeyRevoked = z.object({ keyId: idSchema, tenantId: idSchema });
