import { COMMANDS, newId, SYSTEM_TENANT_ID } from '#hotbed/contracts';
import { RpcClient, RpcServer } from '#hotbed/messaging';
import { withTestBroker } from '#hotbed/messaging/testing';
import { asPlatform, PLATFORM, RpcCommands } from './commands';

jest.setTimeout(60_000);

describe('a command over the broker', () => {
  const broker = withTestBroker();
  const asked: { tenantId: string; actor: string | null }[] = [];
  let registry: RpcServer;
  let commands: RpcCommands;

  beforeAll(async () => {
    const connection = await broker.as('registry');
    registry = new RpcServer(connection, 'registry');
    registry.handle('create-tenant', COMMANDS.registry['create-tenant'].request, async (_, { tenantId, actor }) => {
      asked.push({ tenantId, actor });
      return {};
    });
    registry.start(['create-tenant']);
    await connection.flush();
    commands = new RpcCommands(new RpcClient(await broker.as('gateway')));
  });
  afterAll(() => registry.stop());

  it("goes to the tenant of the caller, in the name of its key; what the gateway itself asks, in nobody's", async () => {
    const caller = { tenantId: newId(), keyId: newId() };
    for (const asker of [caller, asPlatform(caller), PLATFORM]) {
      await commands.request(asker, 'registry', 'create-tenant', { name: 'acme' });
    }
    expect(asked).toEqual([
      { tenantId: caller.tenantId, actor: `key:${caller.keyId}` },
      { tenantId: SYSTEM_TENANT_ID, actor: `key:${caller.keyId}` },
      { tenantId: SYSTEM_TENANT_ID, actor: null },
    ]);
  });
});
