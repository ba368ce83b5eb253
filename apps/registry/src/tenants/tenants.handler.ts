import {
  DomainError,
  NameTaken,
  NotFound,
  SYSTEM_TENANT_ID,
  newId,
  streamId,
  type AnyNewEvent,
  type AppendItem,
  type CommandReply,
  type CommandRequest,
  type EventStore,
} from '#hotbed/contracts';
import type { AsOfStamp } from '../projection/as-of';
import type { TenantsReadModel } from './tenants.read-model';

/** Tenants and their API keys. Only the platform itself (the system tenant) may ask. */
export class TenantsHandler {
  constructor(
    private readonly events: EventStore,
    private readonly tenants: TenantsReadModel,
    private readonly asOf: AsOfStamp,
    private readonly now: () => number = Date.now,
  ) {}

  /** Idempotent by name: an existing tenant is returned with `created: false`. */
  async createTenant(
    callerTenantId: string,
    { name }: CommandRequest<'registry', 'create-tenant'>,
    actor: string,
  ): Promise<CommandReply<'registry', 'create-tenant'>> {
    assertSystem(callerTenantId);
    const existing = await this.events.idOfName(SYSTEM_TENANT_ID, 'tenant', name);
    if (existing !== null) return { tenantId: existing, name, created: false };
    const tenantId = newId();
    const answer = { tenantId, name, created: true };
    try {
      const event = { type: 'TenantCreated' as const, actor, payload: { tenantId, name } };
      return await this.append(tenantId, 'none', event, answer, {
        names: [{ tenantId: SYSTEM_TENANT_ID, kind: 'tenant', name, id: tenantId }],
      });
    } catch (error) {
      if (!(error instanceof NameTaken)) throw error;
      const winner = await this.events.idOfName(SYSTEM_TENANT_ID, 'tenant', name);
      return { tenantId: winner!, name, created: false };
    }
  }

  /** Asked again with the same digest and role, answers with the same key: the first answer may have been lost. */
  async issueKey(
    callerTenantId: string,
    { tenantId, role, label, keyDigest }: CommandRequest<'registry', 'issue-api-key'>,
    actor: string,
  ): Promise<CommandReply<'registry', 'issue-api-key'>> {
    assertSystem(callerTenantId);
    const [created] = await this.events.readStream(streamId('tenant', tenantId), { limit: 1 });
    if (created === undefined) throw new NotFound('tenant', tenantId);
    const answer = { keyId: newId() };
    const event = { type: 'ApiKeyIssued' as const, actor, payload: { ...answer, tenantId, role, label, keyDigest } };
    return this.append(tenantId, 'exists', event, answer, {
      // Of the whole platform: a digest is one key of one tenant.
      idempotency: {
        tenantId: SYSTEM_TENANT_ID,
        key: `issue-api-key/${keyDigest}`,
        requestHash: `${tenantId}/${role}`,
        answer,
      },
    });
  }

  async revokeKey(
    callerTenantId: string,
    { keyId }: CommandRequest<'registry', 'revoke-api-key'>,
    actor: string,
  ): Promise<CommandReply<'registry', 'revoke-api-key'>> {
    assertSystem(callerTenantId);
    const tenantId = await this.tenants.keyOwner(keyId);
    if (tenantId === null) throw new NotFound('API key', keyId);
    const event = { type: 'ApiKeyRevoked' as const, actor, payload: { keyId, tenantId } };
    return this.append(tenantId, 'exists', event, { keyId });
  }

  async authenticate(
    callerTenantId: string,
    { keyDigest }: CommandRequest<'registry', 'authenticate'>,
  ): Promise<CommandReply<'registry', 'authenticate'>> {
    assertSystem(callerTenantId);
    return this.tenants.authenticate(keyDigest);
  }

  /** Answers once the tables show it: the next request may use what this one made. */
  private async append<A>(
    tenantId: string,
    expected: 'none' | 'exists',
    event: Pick<
      Extract<AnyNewEvent, { type: 'TenantCreated' | 'ApiKeyIssued' | 'ApiKeyRevoked' }>,
      'type' | 'actor' | 'payload'
    >,
    answer: A,
    once: Pick<AppendItem, 'names' | 'idempotency'> = {},
  ): Promise<A> {
    const eventId = newId();
    const stamped = {
      ...event,
      eventId,
      tenantId,
      occurredAtMs: this.now(),
      correlationId: eventId,
      causationId: null,
    } as AnyNewEvent;
    const result = await this.events.append({
      writes: [{ streamId: streamId('tenant', tenantId), expected, events: [stamped] }],
      ...once,
    });
    // A replayed append stands somewhere before the end.
    await this.asOf.reach(result.outcome === 'appended' ? result.lastPosition : (await this.events.head()).position);
    return result.outcome === 'appended' ? answer : (result.answer as A);
  }
}

function assertSystem(callerTenantId: string): void {
  if (callerTenantId === SYSTEM_TENANT_ID) return;
  throw new DomainError('Forbidden', 'system_only', 'only the platform itself may manage tenants and keys');
}
