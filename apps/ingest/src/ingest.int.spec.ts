import { headers } from 'nats';
import { Registry } from 'prom-client';
import {
  COMMANDS,
  DomainError,
  ingestSubject,
  newId,
  streamId,
  type AnyStoredEvent,
  type CommandInput,
  type CommandName,
  type CommandReply,
  type EventType,
  type PayloadOf,
  type StoredEvent,
  type TriggerPayload,
} from '#hotbed/contracts';
import { newEvent, withTestDatabase } from '#hotbed/event-store/testing';
import { IngestPublisher, RpcClient, type Broker } from '#hotbed/messaging';
import { startWithoutBroker, until, withTestBroker } from '#hotbed/messaging/testing';
import { Health, silentLogger, type HostedApp } from '#hotbed/runtime';
import { createIngestApp } from './ingest.app';
import { LogFeed } from './testing/log-feed';

jest.setTimeout(60_000);

let app: HostedApp;
let feed: LogFeed;
// Before the database and the broker go: hooks run in the order of their definition.
afterAll(async () => {
  await app.stop();
  await feed.close();
});
const db = withTestDatabase();
const broker = withTestBroker();
let client: RpcClient;
/** Two tenants for the whole file: `tenantId` is the one that acts. */
const [tenantId, strangerId] = [newId(), newId()];
let producerConnection: Broker;
let producer: IngestPublisher;

async function startApp(): Promise<HostedApp> {
  const { user, password } = broker.users.credentials('ingest');
  const env = {
    HOTBED_DATABASE_URL: db.url,
    HOTBED_BLOB_DIR: db.blobFolder,
    HOTBED_NATS_URL: broker.url,
    HOTBED_NATS_USER: user,
    HOTBED_NATS_PASSWORD: password,
  };
  const host = { logger: silentLogger(), metrics: new Registry(), health: new Health() };
  const started = await createIngestApp(env, host);
  await started.start();
  return started;
}

beforeAll(async () => {
  for (const [id, name] of [
    [tenantId, 'acting'],
    [strangerId, 'stranger'],
  ] as const) {
    await broker.addTenant(id);
    await db.store.append({
      writes: [
        {
          streamId: streamId('tenant', id),
          expected: 'none',
          events: [newEvent('TenantCreated', id, { tenantId: id, name })],
        },
      ],
    });
  }
  feed = await LogFeed.open(db.store, await broker.as('relay'));
  client = new RpcClient(await broker.as('gateway'));
  producerConnection = await broker.connect(broker.users.tenant(tenantId)!.producer);
  producer = new IngestPublisher(producerConnection);
  app = await startApp();
}, 120_000);
type Command = CommandName<'ingest'>;

async function ask<C extends Command>(
  command: C,
  body: CommandInput<'ingest', C>,
  caller = tenantId,
): Promise<CommandReply<'ingest', C>> {
  const answer = await client.request(caller, 'ingest', command, body);
  return COMMANDS.ingest[command].reply.parse(answer);
}

let streams = 0;
async function aDataStream(owner = tenantId): Promise<string> {
  return (await ask('create-data-stream', { name: `s-${++streams}` }, owner)).dataStreamId;
}

const record = (prompt: string, key: string | null = null) => ({ key, content: { prompt } });

/** Appends `count` records at the door. @returns their stream versions */
async function records(dataStream: string, count: number, prefix = 'p'): Promise<string[]> {
  const { records: taken } = await ask('append-records', {
    dataStream,
    records: Array.from({ length: count }, (_, i) => record(`${prefix}-${i}`)),
  });
  return taken.map((outcome) => (outcome.outcome === 'received' ? outcome.streamVersion : 'duplicate'));
}

/** Publishes at the broker, as a producer does, once ingest has made the tenant's stream. */
async function publish(dataStreamId: string, content: unknown, key?: string, by = producer): Promise<void> {
  await until('the broker takes the record', async () => {
    try {
      await by.publish(tenantId, dataStreamId, content, key);
      return true;
    } catch (error) {
      if (error instanceof DomainError && error.kind === 'Unavailable') return false;
      throw error;
    }
  });
}

async function eventsOf<T extends EventType>(dataStreamId: string, type: T): Promise<StoredEvent<T>[]> {
  const events: AnyStoredEvent[] = await db.store.readStream(streamId('data-stream', dataStreamId));
  return events.filter((event) => event.type === type) as unknown as StoredEvent<T>[];
}

const promptsOf = async (dataStreamId: string): Promise<string[]> =>
  (await eventsOf(dataStreamId, 'RecordReceived')).map((e) => e.payload.content.prompt);

async function anExperiment(dataStreamId: string, trigger: TriggerPayload): Promise<string> {
  const experimentId = newId();
  const payload: PayloadOf<'ExperimentCreated'> = {
    experimentId,
    name: `e-${experimentId}`,
    adapterId: newId(),
    adapterName: `a-${experimentId}`,
    dataStreamId,
    baseDigest: 'b'.repeat(64),
    numericsId: 'f32-1',
    adapterSpec: { rank: 4, alpha: 8, rslora: false, targets: ['q'], seed: '1' },
    algorithm: {
      kind: 'grpo',
      stepsPerRun: 1,
      promptsPerStep: 1,
      samplesPerPrompt: 2,
      loss: { name: 'importance_sampling' },
      adam: { learningRate: 1e-3, beta1: 0.9, beta2: 0.95, eps: 1e-8, weightDecay: 0, gradClipNorm: 1 },
      schedule: { kind: 'constant' },
      sampling: { temperature: 1, topK: 0, topP: 1, maxTokens: 4, stopTokenIds: [] },
    },
    reward: { verifier: 'exact_match', config: {} },
    trigger,
    checkpointEverySteps: 1,
    seed: '0',
  };
  await db.store.append({
    writes: [
      {
        streamId: streamId('experiment', experimentId),
        expected: 'none',
        events: [newEvent('ExperimentCreated', tenantId, payload)],
      },
    ],
    names: [{ tenantId, kind: 'experiment', name: payload.name, id: experimentId }],
  });
  return experimentId;
}

const end = (experimentId: string) =>
  db.store.append({
    writes: [
      {
        streamId: streamId('experiment', experimentId),
        expected: 'exists',
        events: [newEvent('ExperimentCancelled', tenantId, { experimentId, reason: 'test' })],
      },
    ],
  });

async function windowsOf(dataStreamId: string, experimentId: string): Promise<PayloadOf<'TrainingTriggered'>[]> {
  return (await eventsOf(dataStreamId, 'TrainingTriggered'))
    .map((e) => e.payload)
    .filter((payload) => payload.experimentId === experimentId);
}

/** Until ingest has handled every record or experiment of these streams that is in the log now. */
async function handled(...streamIds: string[]): Promise<void> {
  for (const id of streamIds) {
    const events = await db.store.readStream(id);
    const last = events.findLast((e) => e.type === 'RecordReceived' || e.category === 'experiment')!.streamVersion;
    await until(`the lane ${id} is at ${last}`, async () => {
      const { rows } = await db.pool.query<{ version: bigint }>(
        'SELECT version FROM es.consumer_lane WHERE stream_id = $1',
        [id],
      );
      return rows.some((row) => row.version >= last);
    });
  }
}

/** Every record of the stream stands in exactly one window, and the windows follow each other without a gap. */
async function expectWindowsToCover(dataStreamId: string, experimentId: string, size: number): Promise<void> {
  const versions = (await eventsOf(dataStreamId, 'RecordReceived')).map((e) => e.streamVersion);
  const windows = await windowsOf(dataStreamId, experimentId);
  const expected = Array.from({ length: Math.floor(versions.length / size) }, (_, i) => ({
    from: i === 0 ? 1n : versions[i * size - 1]! + 1n,
    to: versions[(i + 1) * size - 1]!,
    records: size,
  }));
  expect(windows.map((w) => ({ from: BigInt(w.from), to: BigInt(w.to), records: w.records }))).toEqual(expected);
}

const naming = (path: string) =>
  expect.objectContaining({
    kind: 'InvalidInput',
    fields: expect.arrayContaining([expect.objectContaining({ path })]) as unknown,
  }) as DomainError;

describe('a data stream', () => {
  it('has a name of its own within its tenant', async () => {
    const { dataStreamId } = await ask('create-data-stream', { name: 'words' });
    await expect(ask('create-data-stream', { name: 'words' })).rejects.toMatchObject({ code: 'name_taken' });
    const other = await ask('create-data-stream', { name: 'words' }, strangerId);
    expect(other.dataStreamId).not.toBe(dataStreamId);
  });

  it('is made once when its creation is asked for again with the same idempotency key', async () => {
    const request = { name: 'asked-twice', idempotencyKey: 'k' };
    const first = await ask('create-data-stream', request);
    expect(await ask('create-data-stream', request)).toEqual(first);
    await expect(ask('create-data-stream', { ...request, name: 'other' })).rejects.toMatchObject({
      code: 'idempotency_conflict',
    });
  });

  it("is shown with its counts, to its own tenant only, and another's does not exist", async () => {
    const dataStream = await aDataStream();
    await records(dataStream, 3);
    await until('counted', async () => {
      try {
        return (await ask('get-data-stream', { dataStream })).records === 3;
      } catch (error) {
        // The projection has not come to the stream yet.
        if (error instanceof DomainError && error.kind === 'NotFound') return false;
        throw error;
      }
    });
    expect(await ask('get-data-stream', { dataStream })).toMatchObject({ rejected: 0, version: '4' });
    const missing = expect.objectContaining({ kind: 'NotFound', code: 'data_stream_not_found' }) as DomainError;
    await expect(ask('get-data-stream', { dataStream }, strangerId)).rejects.toEqual(missing);
    await expect(ask('list-records', { dataStream }, strangerId)).rejects.toEqual(missing);
    await expect(ask('append-records', { dataStream, records: [record('x')] }, strangerId)).rejects.toEqual(missing);
    expect((await ask('list-data-streams', {}, strangerId)).dataStreams.map((s) => s.dataStreamId)).not.toContain(
      dataStream,
    );
  });

  it('lists its records by page, oldest first', async () => {
    const dataStream = await aDataStream();
    await records(dataStream, 5, 'page');
    const first = await ask('list-records', { dataStream, page: { limit: 3 } });
    const second = await ask('list-records', { dataStream, page: { limit: 3, after: first.next } });
    expect([...first.records, ...second.records].map((r) => r.prompt)).toEqual(
      Array.from({ length: 5 }, (_, i) => `page-${i}`),
    );
    expect(second.next).toBeNull();
    await expect(ask('list-records', { dataStream, page: { after: 'x' } })).rejects.toEqual(naming('page.after'));
  });

  it('lists large records in as many pages as they need', async () => {
    const dataStream = await aDataStream();
    for (let i = 0; i < 8; i++) await ask('append-records', { dataStream, records: [record('é'.repeat(60_000))] });
    let [seen, after]: [number, string | null] = [0, null];
    do {
      const page: CommandReply<'ingest', 'list-records'> = await ask('list-records', { dataStream, page: { after } });
      seen += page.records.length;
      after = page.next;
    } while (after !== null);
    expect(seen).toBe(8);
  });
});

describe('records at the door', () => {
  it('are taken all or none, and the first bad one is named by index and field', async () => {
    const dataStream = await aDataStream();
    const good = record('fine');
    const cases: [unknown, string][] = [
      [{ answer: 'no prompt' }, 'records[1].content.prompt'],
      [{ prompt: '' }, 'records[1].content.prompt'],
      [{ prompt: 'a', extra: 1 }, 'records[1].content'],
      [{ prompt: 'a', metadata: { k: 1 } }, 'records[1].content.metadata.k'],
      [{ prompt: 'a\u0000' }, 'records[1].content.prompt'],
      ['text', 'records[1].content'],
      [undefined, 'records[1].content'],
    ];
    for (const [content, path] of cases) {
      const bad = { key: null, content };
      await expect(ask('append-records', { dataStream, records: [good, bad, good] })).rejects.toEqual(naming(path));
    }
    expect(await promptsOf(dataStream)).toEqual([]);
  });

  it('are known by their key: a second one is a duplicate, whatever it says, within one call too', async () => {
    const dataStream = await aDataStream();
    const first = await ask('append-records', { dataStream, records: [record('one', 'k'), record('two', 'k')] });
    expect(first.records[0]).toMatchObject({ outcome: 'received', streamVersion: '2' });
    const { recordId } = first.records[0]!;
    expect(first.records[1]).toEqual({ outcome: 'duplicate', recordId });
    const again = await ask('append-records', { dataStream, records: [record('three', 'k'), record('new', 'l')] });
    expect(again.records).toEqual([
      { outcome: 'duplicate', recordId },
      expect.objectContaining({ outcome: 'received', streamVersion: '3' }),
    ]);
    const other = await aDataStream();
    const elsewhere = await ask('append-records', { dataStream: other, records: [record('one', 'k')] });
    expect(elsewhere.records[0]!.outcome).toBe('received');
    expect(await promptsOf(dataStream)).toEqual(['one', 'new']);
  });

  it('without a key are all different', async () => {
    const dataStream = await aDataStream();
    await ask('append-records', { dataStream, records: [record('same'), record('same')] });
    expect(await promptsOf(dataStream)).toEqual(['same', 'same']);
  });
});

describe('records from the broker', () => {
  it('are known by the same key as at the door, in both directions', async () => {
    const dataStream = await aDataStream();
    await ask('append-records', { dataStream, records: [record('door', 'a')] });
    await publish(dataStream, { prompt: 'broker, other content' }, 'a');
    await publish(dataStream, { prompt: 'broker' }, 'b');
    await until('the second record', async () => (await promptsOf(dataStream)).length === 2);
    const again = await ask('append-records', { dataStream, records: [record('door, other content', 'b')] });
    expect(again.records[0]!.outcome).toBe('duplicate');
    expect(await promptsOf(dataStream)).toEqual(['door', 'broker']);
  });

  it('are rejected on the record, with what was wrong, and those around them are taken', async () => {
    const dataStream = await aDataStream();
    await publish(dataStream, { prompt: 'before' });
    await publish(dataStream, { prompt: 7 }, 'bad');
    await publish(dataStream, { prompt: 'after' });
    await until('all three', async () => (await promptsOf(dataStream)).length === 2);
    const [rejected] = await eventsOf(dataStream, 'RecordRejected');
    expect(rejected!.payload).toMatchObject({
      identity: { kind: 'key', key: 'bad' },
      problems: [{ path: 'record.prompt' }],
    });
    const reuse = ask('append-records', { dataStream, records: [record('now right', 'bad')] });
    await expect(reuse).rejects.toMatchObject({ kind: 'Conflict', code: 'record_was_rejected' });
  });

  it('that are no JSON, or have a key that no record can have, are rejected and stop nothing', async () => {
    const dataStream = await aDataStream();
    await publish(dataStream, { prompt: 'first' });
    const send = (body: string | Uint8Array, messageId?: string) => {
      const messageHeaders = headers();
      if (messageId !== undefined) messageHeaders.set('Nats-Msg-Id', messageId);
      return producerConnection.jetStream.publish(ingestSubject(tenantId, dataStream), body, {
        headers: messageHeaders,
      });
    };
    await send('{"prompt": ');
    await send(Uint8Array.of(0xff, 0xfe));
    await send('');
    await send('{"prompt": "long key"}', 'k'.repeat(300));
    await send('{"prompt": "odd key"}', 'ke\u0000y');
    await publish(dataStream, { prompt: 'last' });
    await until('the last record', async () => (await promptsOf(dataStream)).includes('last'));
    expect(await promptsOf(dataStream)).toEqual(['first', 'last']);
    const rejected = await eventsOf(dataStream, 'RecordRejected');
    expect(rejected.map((e) => e.payload.problems[0]!.path)).toEqual(['record', 'record', 'record', 'key', 'key']);
  });

  it("for a stream that is not the tenant's are refused in the tenant's own stream, never in another's", async () => {
    const theirs = await aDataStream(strangerId);
    const before = await db.store.readStream(streamId('data-stream', theirs));
    const refused = async () => (await eventsOf(tenantId, 'RecordRejected')).map((e) => e.payload.problems[0]!.message);
    const nobody = newId();
    await publish(theirs, { prompt: 'to the stranger' });
    await publish(nobody, { prompt: 'to nobody' });
    await publish('no-id-at-all', { prompt: 'to no id' });
    await until('three refusals', async () => (await refused()).length === 3);
    expect((await refused()).toSorted()).toEqual(
      [theirs, nobody, 'no-id-at-all'].map((id) => `"${id}" is no data stream of this tenant`).toSorted(),
    );
    expect(await db.store.readStream(streamId('data-stream', theirs))).toEqual(before);
    expect(await db.store.readStream(streamId('data-stream', nobody))).toEqual([]);
    for (const event of await db.store.readStream(streamId('data-stream', tenantId))) {
      expect(event.tenantId).toBe(tenantId);
    }
  });
});

describe('a count trigger', () => {
  it('cuts a window at every Nth record, however they came', async () => {
    const dataStream = await aDataStream();
    const experimentId = await anExperiment(dataStream, { kind: 'count', records: 3 });
    await handled(streamId('experiment', experimentId));
    for (const count of [1, 1, 5, 3, 1]) {
      await records(dataStream, count);
      await handled(streamId('data-stream', dataStream));
    }
    await expectWindowsToCover(dataStream, experimentId, 3);
    expect((await windowsOf(dataStream, experimentId)).map((w) => [w.records, w.cause])).toEqual(
      Array.from({ length: 3 }, () => [3, 'count']),
    );
  });

  it('counts the records that came before its experiment', async () => {
    const dataStream = await aDataStream();
    await records(dataStream, 5);
    await handled(streamId('data-stream', dataStream));
    const experimentId = await anExperiment(dataStream, { kind: 'count', records: 2 });
    await until('two windows', async () => (await windowsOf(dataStream, experimentId)).length === 2);
    await records(dataStream, 1);
    await until('the third', async () => (await windowsOf(dataStream, experimentId)).length === 3);
    await expectWindowsToCover(dataStream, experimentId, 2);
  });

  it('misses and doubles no record when experiments are created while records stream in by both doors', async () => {
    const dataStream = await aDataStream();
    const sizes = [1, 2, 3, 5, 7];
    const experiments: { experimentId: string; size: number }[] = [];
    await Promise.all([
      ...Array.from({ length: 4 }, async (_, door) => {
        for (let i = 0; i < 6; i++) await records(dataStream, 1 + (i % 3), `door-${door}-${i}`);
      }),
      (async () => {
        for (let i = 0; i < 30; i++) await publish(dataStream, { prompt: `broker-${i}` }, `b-${i}`);
      })(),
      (async () => {
        for (let i = 0; i < 10; i++) {
          const size = sizes[i % sizes.length]!;
          experiments.push({ experimentId: await anExperiment(dataStream, { kind: 'count', records: size }), size });
          await handled(streamId('experiment', experiments.at(-1)!.experimentId));
        }
      })(),
    ]);
    await until('every record', async () => (await promptsOf(dataStream)).length === 4 * 12 + 30);
    await handled(streamId('data-stream', dataStream));
    for (const { experimentId, size } of experiments) await expectWindowsToCover(dataStream, experimentId, size);
  });

  it('is quiet once its experiment has ended', async () => {
    const dataStream = await aDataStream();
    const experimentId = await anExperiment(dataStream, { kind: 'count', records: 1 });
    await records(dataStream, 1);
    await until('a window', async () => (await windowsOf(dataStream, experimentId)).length === 1);
    await end(experimentId);
    await handled(streamId('experiment', experimentId));
    await records(dataStream, 2);
    await handled(streamId('data-stream', dataStream));
    expect(await windowsOf(dataStream, experimentId)).toHaveLength(1);
    await expect(ask('trigger-training', { experiment: experimentId })).rejects.toMatchObject({
      kind: 'IllegalState',
      code: 'experiment_ended',
    });
  });
});

describe('an interval trigger', () => {
  it('takes what came, once its time is over, and nothing when nothing came', async () => {
    const dataStream = await aDataStream();
    const experimentId = await anExperiment(dataStream, { kind: 'interval', everyMs: 1000 });
    await handled(streamId('experiment', experimentId));
    await records(dataStream, 3);
    await until('a window', async () => (await windowsOf(dataStream, experimentId)).length > 0);
    await records(dataStream, 2);
    const covered = async () => (await windowsOf(dataStream, experimentId)).reduce((sum, w) => sum + w.records, 0);
    await until('the rest', async () => (await covered()) === 5);
    const windows = await windowsOf(dataStream, experimentId);
    expect(windows.every((w) => w.cause === 'interval')).toBe(true);
    let from = 1n;
    for (const window of windows) {
      expect(BigInt(window.from)).toBe(from);
      from = BigInt(window.to) + 1n;
    }
  });
});

describe('a trigger by hand', () => {
  it('takes what came since the last one, says when there is nothing, and is nobody else’s', async () => {
    const dataStream = await aDataStream();
    const experimentId = await anExperiment(dataStream, { kind: 'manual' });
    await handled(streamId('experiment', experimentId));
    const byHand = (caller = tenantId) => ask('trigger-training', { experiment: `e-${experimentId}` }, caller);
    await expect(byHand()).rejects.toMatchObject({ kind: 'IllegalState', code: 'no_new_records' });
    await records(dataStream, 2);
    expect(await byHand()).toMatchObject({ from: '1', to: '3', records: 2 });
    await expect(byHand()).rejects.toMatchObject({ code: 'no_new_records' });
    await records(dataStream, 1);
    // The trigger itself stands in the stream, too: it is in no window's count.
    expect(await byHand()).toMatchObject({ from: '4', to: '5', records: 1 });
    await expect(byHand(strangerId)).rejects.toMatchObject({ kind: 'NotFound' });
    await expect(ask('trigger-training', { experiment: experimentId }, strangerId)).rejects.toMatchObject({
      kind: 'NotFound',
    });
  });

  it('gives the records to one of several that ask at once', async () => {
    const dataStream = await aDataStream();
    const experimentId = await anExperiment(dataStream, { kind: 'manual' });
    await records(dataStream, 4);
    await handled(streamId('experiment', experimentId));
    const answers = await Promise.allSettled(
      Array.from({ length: 8 }, () => ask('trigger-training', { experiment: experimentId })),
    );
    expect(answers.filter((a) => a.status === 'fulfilled')).toHaveLength(1);
    expect(await windowsOf(dataStream, experimentId)).toHaveLength(1);
  });
});

describe('the log', () => {
  it('says whose key asked, or else that ingest acted', async () => {
    const actor = `key:${newId()}`;
    const inName = <C extends Command>(command: C, body: CommandInput<'ingest', C>) =>
      client.request<CommandReply<'ingest', C>>(tenantId, 'ingest', command, body, { actor });
    const { dataStreamId } = await inName('create-data-stream', { name: 'named' });
    const experimentId = await anExperiment(dataStreamId, { kind: 'manual' });
    await inName('append-records', { dataStream: dataStreamId, records: [record('by key')] });
    await records(dataStreamId, 1);
    await publish(dataStreamId, { prompt: 'by producer' });
    await until('taken', async () => (await promptsOf(dataStreamId)).length === 3);
    await handled(streamId('experiment', experimentId));
    await inName('trigger-training', { experiment: experimentId });
    const events = await db.store.readStream(streamId('data-stream', dataStreamId));
    expect(events.map((e) => [e.type, e.actor])).toEqual([
      ['DataStreamCreated', actor],
      ['RecordReceived', actor],
      ['RecordReceived', 'app:ingest'],
      ['RecordReceived', `producer:${tenantId}`],
      ['TrainingTriggered', actor],
    ]);
  });
});

describe('a restart of ingest', () => {
  it('in the middle of a stream of records loses none and doubles none', async () => {
    const dataStream = await aDataStream();
    const experimentId = await anExperiment(dataStream, { kind: 'count', records: 7 });
    await publish(dataStream, { prompt: 'r-0' }, 'r-0');
    let published = 1;
    const stream = (async () => {
      for (; published < 300; published++) await publish(dataStream, { prompt: `r-${published}` }, `r-${published}`);
    })();
    for (const progress of [60, 150, 240]) {
      await until(`${progress} are published`, () => published >= progress);
      await app.stop();
      app = await startApp();
    }
    await stream;
    await until('every record', async () => (await promptsOf(dataStream)).length >= 300);
    await handled(streamId('data-stream', dataStream), streamId('experiment', experimentId));
    expect((await promptsOf(dataStream)).toSorted()).toEqual(
      Array.from({ length: 300 }, (_, i) => `r-${i}`).toSorted(),
    );
    await expectWindowsToCover(dataStream, experimentId, 7);
  });
});

describe('a start without a broker', () => {
  it('fails in one line and leaves no connection open', async () => {
    const host = { logger: silentLogger(), metrics: new Registry(), health: new Health() };
    await startWithoutBroker(db, (env) => createIngestApp(env, host));
  });
});
