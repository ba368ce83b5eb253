import type { Command } from 'commander';
import type { ApiClient } from '../api/api-client';
import { segment } from '../api/api-client';
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
}
