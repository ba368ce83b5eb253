import { ingestStreamName, InvalidInput, newId, Unavailable } from '#hotbed/contracts';
import { until, withTestBroker } from '#hotbed/messaging/testing';
import type { Broker } from './broker';
import { IngestConsumer, type IngestConsumerDefinition, type IngestMessage } from './ingest-consumer';
import { IngestPublisher } from './ingest-publisher';

jest.setTimeout(60_000);

describe('an ingest consumer', () => {
  const broker = withTestBroker();
  let tenant: string;
  let ingest: Broker;
  let admin: Broker;
  let producer: IngestPublisher;
  let consumer: IngestConsumer | undefined;

  beforeAll(async () => {
    admin = await broker.as('admin');
  });
  beforeEach(async () => {
    tenant = newId();
    await broker.addTenant(tenant);
    ingest = await broker.as('ingest');
    producer = new IngestPublisher(await broker.connect(broker.users.tenant(tenant)!.producer));
  });
  afterEach(async () => {
    await consumer?.stop();
    consumer = undefined;
  });

  const start = async (definition: Partial<IngestConsumerDefinition>): Promise<void> => {
    consumer = new IngestConsumer(ingest, {
      tenantId: tenant,
      handle: async () => undefined,
      reject: async () => undefined,
      ...definition,
    });
    await consumer.start();
  };
  const stored = async (): Promise<number> =>
    (await (await admin.streams).streams.info(ingestStreamName(tenant))).state.messages;
  const promptOf = (message: IngestMessage): string =>
    (JSON.parse(new TextDecoder().decode(message.body)) as { prompt: string }).prompt;

  it("commits each data stream's records in order, in batches, and deletes them from the broker afterwards", async () => {
    const [a, b] = [newId(), newId()];
    const taken = new Map<string, string[]>();
    const sizes: number[] = [];
    await start({
      handle: async (messages) => {
        sizes.push(messages.length);
        expect(new Set(messages.map((m) => m.dataStreamId)).size).toBe(1);
        for (const m of messages) taken.set(m.dataStreamId, [...(taken.get(m.dataStreamId) ?? []), promptOf(m)]);
      },
    });
    const prompts = Array.from({ length: 200 }, (_, i) => String(i));
    await Promise.all(
      prompts.flatMap((prompt) => [a, b].map((id) => producer.publish(tenant, id, { prompt }, prompt))),
    );
    await until('deleted', async () => (await stored()) === 0);
    expect(taken.get(a)).toEqual(prompts);
    expect(taken.get(b)).toEqual(prompts);
    expect(Math.max(...sizes)).toBeGreaterThan(1);
  });

  it('tells key, generation and sequence, and keeps the message until the commit', async () => {
    const id = newId();
    const seen: IngestMessage[] = [];
    let release: (() => void) | undefined;
    const gate = new Promise<void>((resolve) => (release = resolve));
    await start({
      handle: async (messages) => {
        seen.push(...messages);
        await gate;
      },
    });
    await producer.publish(tenant, id, { prompt: 'a' }, 'order-17');
    await producer.publish(tenant, id, { prompt: 'b' });
    await until('taken', () => seen.length > 0);
    expect(await stored()).toBe(2);
    release!();
    await until('deleted', async () => (await stored()) === 0);
    expect(
      seen.map(({ key, sequence, tenantId, dataStreamId }) => ({ key, sequence, tenantId, dataStreamId })),
    ).toEqual([
      { key: 'order-17', sequence: 1n, tenantId: tenant, dataStreamId: id },
      { key: null, sequence: 2n, tenantId: tenant, dataStreamId: id },
    ]);
    expect(seen[0]!.generation).toMatch(/^[0-9a-f-]{36}$/);
  });

  it('rejects a bad record once and commits the others in order', async () => {
    const id = newId();
    const taken: string[] = [];
    const rejected: string[] = [];
    // Published before the consumer runs, so that one batch holds all.
    const first = new IngestConsumer(ingest, {
      tenantId: tenant,
      handle: async () => undefined,
      reject: async () => undefined,
    });
    await first.start();
    await first.stop();
    for (const prompt of ['1', 'bad', '3']) await producer.publish(tenant, id, { prompt });
    await start({
      handle: async (messages) => {
        if (messages.some((m) => promptOf(m) === 'bad')) throw new InvalidInput([{ path: 'prompt', message: 'bad' }]);
        taken.push(...messages.map(promptOf));
      },
      reject: async (message) => void rejected.push(promptOf(message)),
    });
    await until('deleted', async () => (await stored()) === 0);
    expect(taken).toEqual(['1', '3']);
    expect(rejected).toEqual(['bad']);
  });

  it('waits for a database that is away, in order, and rejects nothing', async () => {
    const id = newId();
    const taken: string[] = [];
    let failures = 3;
    await start({
      handle: async (messages) => {
        if (failures-- > 0) throw new Unavailable('database_unavailable', 'away');
        taken.push(...messages.map(promptOf));
      },
      reject: async () => {
        throw new Error('never');
      },
    });
    for (const prompt of ['1', '2', '3']) await producer.publish(tenant, id, { prompt });
    await until('deleted', async () => (await stored()) === 0);
    expect([...taken].sort()).toEqual(['1', '2', '3']);
  });

  it('refuses records when the tenant has no room, loses none, and leaves other tenants theirs', async () => {
    await start({ maxBytes: 64 * 1024, handle: async () => Promise.reject(new Unavailable('x', 'full')) });
    const record = { prompt: 'x'.repeat(8000) };
    const publishAll = async (): Promise<void> => {
      for (let i = 0; i < 20; i++) await producer.publish(tenant, newId(), record);
    };
    await expect(publishAll()).rejects.toMatchObject({ kind: 'TooMany', code: 'ingest_full' });
    const other = newId();
    await broker.addTenant(other);
    const neighbour = new IngestConsumer(ingest, {
      tenantId: other,
      handle: async () => undefined,
      reject: async () => undefined,
    });
    await neighbour.start();
    await new IngestPublisher(await broker.connect(broker.users.tenant(other)!.producer)).publish(
      other,
      newId(),
      record,
    );
    await neighbour.stop();
    expect(await stored()).toBeGreaterThan(5);
  });

  it('refuses keys that a header cannot carry, and records that are too large', async () => {
    for (const key of ['', ' a', 'a\r\nNats-Msg-Id: b', 'ü', 'x'.repeat(257)]) {
      await expect(producer.publish(tenant, newId(), {}, key)).rejects.toMatchObject({ fields: [{ path: 'key' }] });
    }
    await expect(producer.publish(tenant, newId(), 'x'.repeat(300_000))).rejects.toMatchObject({
      fields: [{ path: 'record' }],
    });
  });

  it('publishes to a tenant without an ingest stream with a clear refusal', async () => {
    // A server of 2.9 says nothing at all through an import, so that there it is a time-out.
    await expect(producer.publish(tenant, newId(), {})).rejects.toMatchObject({ kind: 'Unavailable' });
  });
});
