import { COMMANDS } from '#hotbed/contracts';
import type { RpcServer } from '#hotbed/messaging';
import type { LineageQueries } from './lineage/lineage.queries';
import type { AsOfStamp } from './projection/as-of';
import type { TenantsHandler } from './tenants/tenants.handler';
import type { VersionsQueries } from './versions/versions.queries';

interface Handlers {
  versions: VersionsQueries;
  lineage: LineageQueries;
  tenants: TenantsHandler;
  asOf: AsOfStamp;
}

const { registry } = COMMANDS;

/** Who acts where the asker named nobody. */
const ACTOR = 'app:registry';

/** Every question and command of the registry and who handles it. */
export function handleRegistryCommands(rpc: RpcServer, { versions, lineage, tenants, asOf }: Handlers): RpcServer {
  return rpc
    .handle('resolve', registry.resolve.request, (q, { tenantId }) => versions.resolve(tenantId, q))
    .handle('get-adapter', registry['get-adapter'].request, (q, { tenantId }) => versions.getAdapter(tenantId, q))
    .handle('list-adapters', registry['list-adapters'].request, (q, { tenantId }) => versions.listAdapters(tenantId, q))
    .handle('list-versions', registry['list-versions'].request, (q, { tenantId }) => versions.listVersions(tenantId, q))
    .handle('alias-history', registry['alias-history'].request, (q, { tenantId }) => versions.aliasHistory(tenantId, q))
    .handle('lineage-of-version', registry['lineage-of-version'].request, (q, { tenantId }) =>
      lineage.ofVersion(tenantId, q),
    )
    .handle('versions-of-record', registry['versions-of-record'].request, (q, { tenantId }) =>
      lineage.versionsOfRecord(tenantId, q),
    )
    .handle('head', registry.head.request, () => asOf.now())
    .handle('create-tenant', registry['create-tenant'].request, (c, { tenantId, actor }) =>
      tenants.createTenant(tenantId, c, actor ?? ACTOR),
    )
    .handle('issue-api-key', registry['issue-api-key'].request, (c, { tenantId, actor }) =>
      tenants.issueKey(tenantId, c, actor ?? ACTOR),
    )
    .handle('revoke-api-key', registry['revoke-api-key'].request, (c, { tenantId, actor }) =>
      tenants.revokeKey(tenantId, c, actor ?? ACTOR),
    )
    .handle('authenticate', registry.authenticate.request, (q, { tenantId }) => tenants.authenticate(tenantId, q));
}
