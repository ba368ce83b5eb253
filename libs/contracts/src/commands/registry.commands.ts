import { z } from 'zod';
import { adapterSpecSchema } from '../adapter-spec';
import { blobRefSchema } from '../blob-ref';
import { API_KEY_ROLES } from '../events/registry.events';
import { digestSchema, idSchema, nameSchema, u64Schema } from '../ids';
import { pageSchema, refSchema } from './paging';

/** Carried by every answer: the log position it is true at, and the head that an auditor may hold us to. */
export const asOfSchema = z.object({
  asOfPosition: u64Schema,
  head: z.object({ position: u64Schema, hash: digestSchema }),
});

export const adapterVersionSchema = z.object({
  adapterId: idSchema,
  adapterName: nameSchema,
  version: z.number().int().positive(),
  opIndex: u64Schema,
  parentVersion: z.number().int().positive().nullable(),
  label: z.string().nullable(),
  spec: adapterSpecSchema,
  baseDigest: digestSchema,
  numericsId: z.string(),
  weightsDigest: digestSchema,
  stateDigest: digestSchema,
  weightsFile: blobRefSchema,
  configFile: blobRefSchema,
  stateFile: blobRefSchema,
  /** Global position of AdapterCheckpointed. */
  position: u64Schema,
  createdAtMs: z.number().int(),
});
export type AdapterVersionView = z.infer<typeof adapterVersionSchema>;

export const adapterViewSchema = z.object({
  adapterId: idSchema,
  name: nameSchema,
  spec: adapterSpecSchema,
  baseDigest: digestSchema,
  numericsId: z.string(),
  experimentId: idSchema.nullable(),
  /** Newest applied operation. */
  appliedOpIndex: u64Schema,
  latestVersion: z.number().int().positive().nullable(),
  aliases: z.record(z.string(), z.number().int().positive()),
  createdAtMs: z.number().int(),
});
export type AdapterView = z.infer<typeof adapterViewSchema>;

/** One use of a record (or rollout of it) by one operation. */
export const influenceSchema = z.object({
  opIndex: u64Schema,
  operationPosition: u64Schema,
  datumIndex: z.number().int().nonnegative(),
  recordId: idSchema.nullable(),
  dataStreamId: idSchema.nullable(),
  recordVersion: u64Schema.nullable(),
  rollouts: z.array(z.object({ rolloutId: idSchema, reward: z.number().nullable(), advantage: z.number().nullable() })),
});

const versionRef = { adapter: refSchema, version: z.number().int().positive() };

export const REGISTRY_COMMANDS = {
  /** `ref` is `latest`, another alias, a version number, or null for `latest`. `asOfMs` asks for a moment in the past. */
  resolve: {
    request: z.strictObject({
      adapter: refSchema,
      ref: z.string().max(64).nullable().default(null),
      asOfMs: z.number().int().nullable().default(null),
    }),
    reply: asOfSchema.extend({ version: adapterVersionSchema }),
  },
  'get-adapter': {
    request: z.strictObject({ adapter: refSchema }),
    reply: asOfSchema.extend({ adapter: adapterViewSchema }),
  },
  'list-adapters': {
    request: z.strictObject({ page: pageSchema.default({ limit: 100, after: null }) }),
    reply: asOfSchema.extend({ adapters: z.array(adapterViewSchema), next: z.string().nullable() }),
  },
  'list-versions': {
    request: z.strictObject({ adapter: refSchema, page: pageSchema.default({ limit: 100, after: null }) }),
    reply: asOfSchema.extend({ versions: z.array(adapterVersionSchema), next: z.string().nullable() }),
  },
  'alias-history': {
    request: z.strictObject({ adapter: refSchema, alias: nameSchema }),
    reply: asOfSchema.extend({
      moves: z.array(
        z.object({
          version: z.number().int().positive(),
          previousVersion: z.number().int().positive().nullable(),
          reason: z.string(),
          actor: z.string(),
          movedAtMs: z.number().int(),
          position: u64Schema,
        }),
      ),
    }),
  },
  /** Which records, rollouts and rewards influenced a version, in operation order. Paged by use. */
  'lineage-of-version': {
    request: z.strictObject({ ...versionRef, page: pageSchema.default({ limit: 1000, after: null }) }),
    reply: asOfSchema.extend({
      version: adapterVersionSchema,
      distinctRecords: z.number().int().nonnegative(),
      distinctRollouts: z.number().int().nonnegative(),
      influences: z.array(influenceSchema),
      next: z.string().nullable(),
    }),
  },
  /** Which versions a record touched, the later ones of the same adapter included. */
  'versions-of-record': {
    request: z.strictObject({ recordId: idSchema }),
    reply: asOfSchema.extend({
      recordId: idSchema,
      versions: z.array(
        z.object({
          adapterId: idSchema,
          adapterName: nameSchema,
          version: z.number().int().positive(),
          firstOpIndex: u64Schema,
        }),
      ),
    }),
  },
  head: { request: z.strictObject({}), reply: asOfSchema },
  /** System tenant only. */
  'create-tenant': {
    request: z.strictObject({ name: nameSchema }),
    reply: z.object({ tenantId: idSchema, name: nameSchema, created: z.boolean() }),
  },
  /** System tenant only. The key is shown once; the log keeps its digest. */
  'issue-api-key': {
    request: z.strictObject({
      tenantId: idSchema,
      role: z.enum(API_KEY_ROLES),
      label: z.string().max(200).default(''),
      /** Digest of a key made by the caller; the registry never sees keys. */
      keyDigest: digestSchema,
    }),
    reply: z.object({ keyId: idSchema }),
  },
  'revoke-api-key': { request: z.strictObject({ keyId: idSchema }), reply: z.object({ keyId: idSchema }) },
  /** System tenant only: who presents the key with this digest. Unauthenticated `unknown_key`. */
  authenticate: {
    request: z.strictObject({ keyDigest: digestSchema }),
    reply: z.object({
      keyId: idSchema,
      tenantId: idSchema,
      tenantName: nameSchema,
      role: z.enum(API_KEY_ROLES),
    }),
  },
} as const;
