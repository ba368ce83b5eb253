import { connect, headers, type NatsConnection } from 'nats';
import { ingestStreamName, ingestSubject, newId, rpcSubject } from '#hotbed/contracts';
import { withTestBroker } from '#hotbed/messaging/testing';
import { z } from 'zod';
import { ensureIngestStream } from './event-streams';
import { IngestPublisher } from './ingest-publisher';
import { RpcClient } from './rpc-client';
import { RpcServer } from './rpc-server';

jest.setTimeout(60_000);

const [tenantA, tenantB, stream] = [newId(), newId(), newId()];

describe('credentials of the broker', () => {
  const broker = withTestBroker();
  let rpc: RpcServer;

  beforeAll(async () => {
    await broker.addTenant(tenantA);
    await broker.addTenant(tenantB);
    const ingest = await broker.as('ingest');
    await ensureIngestStream(ingest, tenantA);
    await ensureIngestStream(ingest, tenantB);
    const registry = await broker.as('registry');
    rpc = new RpcServer(registry, 'registry');
    rpc.handle('who', z.object({}), async (_, { tenantId }) => ({ tenantId }));
    rpc.handle('whoami', z.object({}), async (_, { actor }) => ({ actor }));
    rpc.start(['who', 'whoami']);
    await registry.flush();
  });
  afterAll(() => rpc.stop());

  const raw = async (
    tenant: string,
    kind: 'producer' | 'reader',
  ): Promise<{ nats: NatsConnection; errors: string[] }> => {
    const { user, password } = broker.users.tenant(tenant)![kind];
    const nats = await connect({ servers: broker.url, user, pass: password, inboxPrefix: `_INBOX.${user}` });
    const errors: string[] = [];
    void (async () => {
      for await (const status of nats.status()) errors.push(JSON.stringify(status));
    })();
    return { nats, errors };
  };
  const refused = async (nats: NatsConnection, subject: string): Promise<void> => {
    await expect(nats.request(subject, '{}', { timeout: 1000 })).rejects.toThrow(/Permissions Violation/i);
  };

  it('let a producer publish to its own tenant only', async () => {
    const own = new IngestPublisher(await broker.connect(broker.users.tenant(tenantA)!.producer));
    expect(await own.publish(tenantA, stream, { prompt: 'a' }, 'k')).toEqual({ sequence: 1n, duplicate: false });
    expect(await own.publish(tenantA, stream, { prompt: 'a' }, 'k')).toEqual({ sequence: 1n, duplicate: true });
    expect(await own.publish(tenantA, newId(), { prompt: 'a' }, 'k')).toEqual({ sequence: 2n, duplicate: false });
    const { nats } = await raw(tenantA, 'producer');
    await refused(nats, ingestSubject(tenantB, stream));
    await refused(nats, `hotbed.v1.adapter.${tenantB}.${newId()}.AdapterCreated`);
    await nats.close();
  });

  it('give tenants no JetStream API and no acknowledgements', async () => {
    for (const kind of ['producer', 'reader'] as const) {
      const { nats } = await raw(tenantA, kind);
      for (const subject of [
        '$JS.API.INFO',
        '$JS.API.STREAM.NAMES',
        `$JS.API.STREAM.INFO.${ingestStreamName(tenantA)}`,
        `$JS.API.STREAM.MSG.GET.${ingestStreamName(tenantB)}`,
        `$JS.API.STREAM.PURGE.${ingestStreamName(tenantB)}`,
        `$JS.API.CONSUMER.CREATE.${ingestStreamName(tenantB)}.x`,
        '$JS.ACK.HOTBED_ADAPTER.x.1.1.1.1.0',
      ]) {
        await refused(nats, subject);
      }
      await nats.close();
    }
  });

  it.each([
    ['gateway', ['HOTBED_DATA', 'HOTBED_REGISTRY']],
    ['registry', ['HOTBED_ADAPTER', 'HOTBED_REGISTRY']],
    ['rewarder', ['HOTBED_EXPERIMENT', 'HOTBED_DATA']],
    ['ingest', ['HOTBED_REGISTRY', 'HOTBED_ROLLOUT']],
    ['orchestrator', ['HOTBED_EXPERIMENT']],
    ['gpu-worker', ['HOTBED_DATA']],
  ] as const)('let %s consume no stream that it has no lane on', async (app, streams) => {
    const { nats } = await broker.as(app);
    for (const name of streams) {
      for (const call of [`CONSUMER.DURABLE.CREATE.${name}.x`, `CONSUMER.MSG.NEXT.${name}.x`, `STREAM.INFO.${name}`]) {
        await refused(nats, `$JS.API.${call}`);
      }
    }
  });

  it('let only the gateway ask the apps', async () => {
    for (const app of ['ingest', 'orchestrator', 'rewarder', 'gpu-worker', 'registry', 'relay'] as const) {
      const { nats } = await broker.as(app);
      await refused(nats, rpcSubject(tenantA, 'registry', 'who'));
    }
  });

  it("let nobody listen to another's replies, records or events", async () => {
    const gateway = broker.users.credentials('gateway');
    const clients = [await raw(tenantA, 'producer'), await raw(tenantA, 'reader')];
    clients.push({
      nats: await connect({
        servers: broker.url,
        user: gateway.user,
        pass: gateway.password,
        inboxPrefix: '_INBOX.gateway',
      }),
      errors: [],
    });
    for (const { nats } of clients) {
      for (const subject of [
        '>',
        '_INBOX.>',
        `_INBOX.producer-${tenantB}.>`,
        '_INBOX.orchestrator.>',
        'hotbed.>',
        `hotbed.ingest.${tenantB}.*`,
        `hotbed.rpc.${tenantB}.registry.*`,
        'hotbed.v1.>',
      ]) {
        const subscription = nats.subscribe(subject);
        const heard = (async () => {
          for await (const _ of subscription) throw new Error(`heard something on ${subject}`);
        })();
        await nats.flush();
        await expect(heard).rejects.toThrow(/Permissions Violation/i);
      }
      await nats.close();
    }
  });

  it('take the tenant of a question from its subject, and answer a reader about its own tenant only', async () => {
    const reader = await broker.connect(broker.users.tenant(tenantA)!.reader);
    expect(await new RpcClient(reader).request(tenantA, 'registry', 'who', { tenantId: tenantB })).toEqual({
      tenantId: tenantA,
    });
    const { nats } = await raw(tenantA, 'reader');
    await refused(nats, rpcSubject(tenantB, 'registry', 'who'));
    await refused(nats, rpcSubject(tenantA, 'orchestrator', 'start-experiment'));
    await nats.close();
  });

  it('let no tenant ask in the name of an actor', async () => {
    const reader = await broker.connect(broker.users.tenant(tenantA)!.reader);
    const actor = `key:${newId()}`;
    expect(await new RpcClient(reader).request(tenantA, 'registry', 'whoami', {}, { actor })).toEqual({ actor: null });
    const { nats } = await raw(tenantA, 'reader');
    const header = headers();
    header.set('Hotbed-Actor', 'app:registry');
    const answer = await nats.request(rpcSubject(tenantA, 'registry', 'whoami'), '{}', {
      headers: header,
      timeout: 2000,
    });
    expect(answer.json()).toEqual({ ok: true, result: { actor: null } });
    await nats.close();
  });

  it('let no asker make a responder publish where the asker may not', async () => {
    const { nats } = await raw(tenantA, 'reader');
    nats.publish(rpcSubject(tenantA, 'registry', 'who'), '{}', { reply: ingestSubject(tenantB, stream) });
    await nats.flush();
    // The same responder answers the next question after it has seen the first.
    await nats.request(rpcSubject(tenantA, 'registry', 'who'), '{}', { timeout: 2000 });
    const admin = await broker.as('admin');
    const info = await (await admin.streams).streams.info(ingestStreamName(tenantB));
    expect(info.state.messages).toBe(0);
    await nats.close();
  });

  it("let no producer have JetStream's answer delivered where it may not publish", async () => {
    const admin = await broker.as('admin');
    const { streams } = await admin.streams;
    await streams.add({ name: 'HOTBED_DATA', subjects: ['hotbed.v1.data-stream.>'] });
    const own = (await streams.info(ingestStreamName(tenantA))).state.messages;
    const { nats } = await raw(tenantA, 'producer');
    const elsewhere = [
      ingestSubject(tenantB, stream),
      `hotbed.v1.data-stream.${tenantB}.${stream}.RecordReceived`,
      `$JS.API.STREAM.PURGE.${ingestStreamName(tenantA)}`,
      `hotbed.rpc.${tenantB}.registry.who`,
    ];
    for (const reply of elsewhere) nats.publish(ingestSubject(tenantA, stream), '{}', { reply });
    await nats.request(ingestSubject(tenantA, stream), '{}', { timeout: 2000 });
    // Everything sent before has been stored and answered.
    expect((await streams.info(ingestStreamName(tenantA))).state.messages).toBe(own + elsewhere.length + 1);
    await admin.flush();
    expect((await streams.info(ingestStreamName(tenantB))).state.messages).toBe(0);
    expect((await streams.info('HOTBED_DATA')).state.messages).toBe(0);
    await nats.close();
  });

  it('let a tenant that is added later in, without disturbing who is connected', async () => {
    const tenantC = newId();
    const before = await broker.as('ingest');
    await broker.addTenant(tenantC);
    await ensureIngestStream(before, tenantC);
    const producer = new IngestPublisher(await broker.connect(broker.users.tenant(tenantC)!.producer));
    expect(await producer.publish(tenantC, stream, { prompt: 'a' })).toMatchObject({ sequence: 1n });
  });

  it('are refused when wrong', async () => {
    await expect(broker.connect({ user: 'relay', password: 'wrong' })).rejects.toMatchObject({
      code: 'broker_unreachable',
    });
  });
});
