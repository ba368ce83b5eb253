import type { Command } from 'commander';
import { DomainError } from '#hotbed/contracts';
import { BrokerUsers } from '#hotbed/messaging';
import { segment, type ApiClient } from '../api/api-client';
import { platformFilesHere } from '../platform/platform-files';
import { print } from '../terminal/print';

export function addTenantsCommands(program: Command, api: () => ApiClient): void {
  const tenants = program.command('tenants').description('tenants and their keys (needs an admin key)');

  tenants
    .command('create <name>')
    .description('create a tenant and show an API key for it, once')
    .action(async (name: string) => {
      const { tenantId } = await api().post<{ tenantId: string }>('/v1/tenants', { name });
      const { key } = await api().post<{ key: string }>(`/v1/tenants/${segment(tenantId)}/keys`, {
        label: 'first key',
      });
      print({ tenantId, name, key }, () => `tenant ${name} (${tenantId})\nAPI key ${key}  (shown once)`);
    });

  tenants
    .command('broker <name>')
    .description(
      "a tenant's users at the platform's own NATS server: producer (publishes records), reader (asks the registry)",
    )
    .action(async (name: string) => {
      const { tenantId } = await api().post<{ tenantId: string }>('/v1/tenants', { name });
      const file = platformFilesHere().brokerUsers;
      const users = BrokerUsers.readTenant(file, tenantId);
      if (users === null) {
        throw new DomainError(
          'NotFound',
          'no_broker_users',
          `${file} has no users of ${name}; ask on the platform's machine`,
        );
      }
      print({ tenantId, ...users }, () =>
        [
          `producer  ${users.producer.user}  ${users.producer.password}  publishes on hotbed.ingest.${tenantId}.<stream id>`,
          `reader    ${users.reader.user}  ${users.reader.password}  asks hotbed.rpc.${tenantId}.registry.*`,
          'inbox prefix: _INBOX.<user>',
        ].join('\n'),
      );
    });
}
