import { createHash, randomBytes } from 'node:crypto';
import { DomainError, SYSTEM_TENANT_ID, type CommandReply } from '#hotbed/contracts';
import { Broker, RpcClient } from '#hotbed/messaging';

const DEFAULT_TENANT = 'default';

export function newApiKey(): string {
  return `hb_${randomBytes(32).toString('base64url')}`;
}

/** Makes `key` an admin key of tenant `default`, which is made where missing. A key that is known stays as it is. */
export async function issueAdminKey(
  broker: { url: string; user?: string; password?: string },
  key: string,
): Promise<void> {
  const connection = await Broker.connect({ ...broker, name: 'hotbed-admin-key' });
  try {
    const registry = new RpcClient(connection);
    const ask = <T>(command: string, body: unknown) => registry.request<T>(SYSTEM_TENANT_ID, 'registry', command, body);
    const { tenantId } = await ask<CommandReply<'registry', 'create-tenant'>>('create-tenant', {
      name: DEFAULT_TENANT,
    });
    const keyDigest = createHash('sha256').update(key).digest('hex');
    const known = await ask('authenticate', { keyDigest }).then(
      () => true,
      (error: unknown) => {
        if (error instanceof DomainError && error.code === 'unknown_key') return false;
        throw error;
      },
    );
    if (!known) await ask('issue-api-key', { tenantId, role: 'admin', label: 'first key', keyDigest });
  } finally {
    await connection.close();
  }
}
