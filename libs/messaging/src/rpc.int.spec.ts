import { connect, headers } from 'nats';
import { z } from 'zod';
import { DomainError, newId, NotFound } from '#hotbed/contracts';
import { until, withTestBroker } from '#hotbed/messaging/testing';
import type { Broker } from './broker';
import { RpcClient } from './rpc-client';
import { RPC_LIMIT_BYTES, RpcServer } from './rpc-server';

jest.setTimeout(60_000);

const tenant = newId();

describe('request and reply', () => {
  const broker = withTestBroker();
  let registry: Broker;
  let client: RpcClient;
  const bugs: unknown[] = [];
  let server: RpcServer;
  let release: () => void = () => undefined;

  beforeAll(async () => {
    registry = await broker.as('registry');
    client = new RpcClient(await broker.as('gateway'));
    server = new RpcServer(registry, 'registry', { timeoutMs: 500, onBug: (_, error) => bugs.push(error) })
      .handle('echo', z.object({ text: z.string() }), async ({ text }, { tenantId }) => ({ text, tenantId }))
      .handle('whoami', z.object({}), async (_, { actor }) => ({ actor }))
      .handle('missing', z.object({}), async () => {
        throw new NotFound('adapter', 'a1');
      })
      .handle('bug', z.object({}), async () => {
        throw new TypeError('secret detail');
      })
      .handle('huge', z.object({}), async () => 'x'.repeat(RPC_LIMIT_BYTES))
      .handle('slow', z.object({}), () => new Promise((resolve) => (release = () => resolve('done'))));
    server.start(['echo', 'whoami', 'missing', 'bug', 'huge', 'slow']);
    await registry.flush();
  });
  afterAll(() => server.stop());

  it('answers with the result', async () => {
    expect(await client.request(tenant, 'registry', 'echo', { text: 'zwölf 🌱' })).toEqual({
      text: 'zwölf 🌱',
      tenantId: tenant,
    });
  });

  it('is plain JSON for any NATS client', async () => {
    const { user, password } = broker.users.credentials('gateway');
    const nats = await connect({ servers: broker.url, user, pass: password, inboxPrefix: '_INBOX.gateway' });
    const answer = await nats.request(`hotbed.rpc.${tenant}.registry.echo`, '{"text":"a"}');
    expect(answer.json()).toEqual({ ok: true, result: { text: 'a', tenantId: tenant } });
    const refusal = await nats.request(`hotbed.rpc.${tenant}.registry.echo`, '{"text":');
    expect(refusal.json()).toMatchObject({ ok: false, error: { kind: 'InvalidInput', fields: [{ path: 'body' }] } });
    const nowhere = await nats.request(`hotbed.rpc.not-a-tenant.registry.echo`, '{"text":"a"}');
    expect(nowhere.json()).toMatchObject({ ok: false, error: { fields: [{ path: 'subject' }] } });
    await nats.close();
  });

  it('tells in whose name a service asks', async () => {
    const actor = `key:${newId()}`;
    expect(await client.request(tenant, 'registry', 'whoami', {}, { actor })).toEqual({ actor });
    expect(await client.request(tenant, 'registry', 'whoami', {})).toEqual({ actor: null });
  });

  it.each(['app:registry', 'key:', `key:${newId()}/x`, newId()])(
    'refuses "%s" as an actor, on both ends',
    async (actor) => {
      const named = { kind: 'InvalidInput', fields: [{ path: 'Hotbed-Actor' }] };
      await expect(client.request(tenant, 'registry', 'whoami', {}, { actor })).rejects.toMatchObject(named);
      const { nats } = await broker.as('gateway');
      const header = headers();
      header.set('Hotbed-Actor', actor);
      const answer = await nats.request(`hotbed.rpc.${tenant}.registry.whoami`, '{}', {
        headers: header,
        timeout: 5000,
      });
      expect(answer.json()).toMatchObject({ ok: false, error: named });
    },
  );

  it.each([
    ['echo', { text: 1 }, { kind: 'InvalidInput', fields: [{ path: 'text' }] }],
    ['missing', {}, { kind: 'NotFound', code: 'adapter_not_found', context: { id: 'a1' } }],
    ['nothing', {}, { kind: 'NotFound', code: 'command_not_found' }],
    ['huge', {}, { kind: 'InvalidInput', fields: [{ path: 'body' }] }],
    ['slow', {}, { kind: 'Unavailable', code: 'rpc_timeout' }],
  ])('%s: errors arrive as they were thrown', async (command, body, expected) => {
    const error = await client.request(tenant, 'registry', command, body).catch((e: unknown) => e);
    expect(error).toBeInstanceOf(DomainError);
    expect(error).toMatchObject(expected);
  });

  it('keeps a bug in the log and off the wire', async () => {
    await expect(client.request(tenant, 'registry', 'bug', {})).rejects.toThrow('internal error');
    expect(bugs).toEqual([expect.objectContaining({ message: 'secret detail' })]);
  });

  it('says when nobody answers, or not in time', async () => {
    await expect(client.request(tenant, 'rewarder', 'x', {})).rejects.toMatchObject({ code: 'rpc_no_responders' });
    await expect(client.request(tenant, 'registry', 'slow', {}, { timeoutMs: 50 })).rejects.toMatchObject({
      code: 'rpc_timeout',
    });
    await expect(
      client.request(tenant, 'registry', 'echo', { text: 'x'.repeat(RPC_LIMIT_BYTES) }),
    ).rejects.toMatchObject({
      kind: 'InvalidInput',
    });
  });

  it('refuses to begin with a command without handler, or a handler without command', () => {
    const other = new RpcServer(registry, 'ingest').handle('a', z.object({}), async () => null);
    expect(() => other.start(['a', 'b'])).toThrow('ingest: add a handler for b');
    expect(() => other.start([])).toThrow("ingest: add a to the app's list of commands");
    expect(() => other.handle('a', z.object({}), async () => null)).toThrow('two handlers');
  });

  it('answers what it took before it stops', async () => {
    const orchestrator = await broker.as('orchestrator');
    const second = new RpcServer(orchestrator, 'orchestrator');
    let taken = false;
    let finish: () => void = () => undefined;
    second.handle('work', z.object({}), () => {
      taken = true;
      return new Promise((resolve) => (finish = () => resolve('done')));
    });
    second.start(['work']);
    await orchestrator.flush();
    const answer = client.request(tenant, 'orchestrator', 'work', {});
    await until('taken', () => taken);
    const stopped = second.stop();
    finish();
    expect(await answer).toBe('done');
    await stopped;
    await expect(client.request(tenant, 'orchestrator', 'work', {})).rejects.toMatchObject({
      code: 'rpc_no_responders',
    });
    release();
  });
});
