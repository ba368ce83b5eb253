import { Broker, IngestPublisher } from '#hotbed/messaging';
import type { Door } from './door';
import { eventually } from './eventually';
import type { RunningPlatform, TenantCredentials } from './running-platform';

export interface Tenant {
  tenantId: string;
  name: string;
  key: string;
  door: Door;
}

export async function aTenant(platform: RunningPlatform, name: string): Promise<Tenant> {
  const admin = platform.door();
  const { tenantId } = await admin.made<{ tenantId: string }>('POST', '/v1/tenants', { name });
  const { key } = await admin.made<{ key: string }>('POST', `/v1/tenants/${tenantId}/keys`, { label: 'test' });
  return { tenantId, name, key, door: platform.door(key) };
}

/** The tenant's users at the broker, once the platform has made them. */
export function credentialsOf(platform: RunningPlatform, { tenantId, name }: Tenant): Promise<TenantCredentials> {
  return eventually(`broker users of ${name}`, () => platform.credentialsOf(tenantId));
}

/** A producer of the tenant with the tenant's own credentials; `close` it. */
export async function aProducer(
  platform: RunningPlatform,
  tenant: Tenant,
): Promise<{
  publish: (dataStreamId: string, record: unknown, key?: string) => Promise<boolean>;
  close: () => Promise<void>;
}> {
  const { producer } = await credentialsOf(platform, tenant);
  const broker = await eventually(`the broker knows the producer of ${tenant.name}`, () =>
    Broker.connect({ url: platform.announced.natsUrl, ...producer, name: 'test-producer' }).catch(() => null),
  );
  const publisher = new IngestPublisher(broker);
  return {
    /** The tenant's stream is made a moment after the tenant. @returns whether the broker had the key already */
    publish: (dataStreamId, record, key) =>
      eventually('the broker takes a record', () =>
        publisher.publish(tenant.tenantId, dataStreamId, record, key).then(
          ({ duplicate }) => ({ duplicate }),
          (error: unknown) => {
            if (error instanceof Error && 'retryable' in error && error.retryable === true) return null;
            throw error;
          },
        ),
      ).then(({ duplicate }) => duplicate),
    close: () => broker.close(),
  };
}
