import { DomainError, type CommandReply } from '#hotbed/contracts';
import type { Queries } from '#hotbed/event-store';

type Authenticated = CommandReply<'registry', 'authenticate'>;

/** Tenants and API keys by digest. */
export class TenantsReadModel {
  constructor(private readonly database: Queries) {}

  /** @throws Unauthenticated `unknown_key` */
  async authenticate(keyDigest: string): Promise<Authenticated> {
    const { rows } = await this.database.query<Authenticated>(
      `SELECT k.key_id AS "keyId", k.tenant_id AS "tenantId", t.name AS "tenantName", k.role
       FROM registry.api_key k JOIN registry.tenant t USING (tenant_id) WHERE k.key_digest = $1 AND NOT k.revoked`,
      [keyDigest],
    );
    if (rows[0] !== undefined) return rows[0];
    throw new DomainError('Unauthenticated', 'unknown_key', 'the API key is unknown or revoked');
  }

  async keyOwner(keyId: string): Promise<string | null> {
    const { rows } = await this.database.query<{ tenant_id: string }>(
      'SELECT tenant_id FROM registry.api_key WHERE key_id = $1',
      [keyId],
    );
    return rows[0]?.tenant_id ?? null;
  }
}
