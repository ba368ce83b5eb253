import { spawn } from 'node:child_process';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { Client } from 'pg';
import { InvalidInput, newId, streamId, type AnyStoredEvent, type UnitOfWork } from '#hotbed/contracts';
import { aStreamOfRecords, withTestDatabase } from '#hotbed/event-store/testing';
import { until, withTestBroker } from '#hotbed/messaging/testing';
import type { Broker } from './broker';
import { Doorbell, type Ring } from './doorbell';
import { EventStreamWriter } from './event-writer';
import { LaneConsumer, type LaneConsumerDefinition } from './lane-consumer';

jest.setTimeout(60_000);

const tenant = newId();
const DATA = 'HOTBED_DATA';

describe('a lane consumer', () => {
  const db = withTestDatabase();
  const broker = withTestBroker();
  let admin: Broker;
  let service: Broker;
  let publishedTo = 0n;
  const consumers: LaneConsumer[] = [];

  beforeAll(async () => {
    admin = await broker.as('admin');
    service = await broker.as('ingest');
    await new EventStreamWriter(admin, DATA).recreate('g1');
    const owner = new Client({ connectionString: db.ownerUrl });
    await owner.connect();
    await owner.query('CREATE TABLE public.effect (n bigserial, consumer text, stream_id text, version bigint)');
    await owner.query('GRANT ALL ON public.effect, public.effect_n_seq TO hotbed_app');
    await owner.end();
  });
  afterEach(async () => {
    await Promise.all(consumers.splice(0).map((consumer) => consumer.stop()));
  });

  const append = (id: string, count = 1) => db.store.append(aStreamOfRecords(tenant, id, count));

  /** What the relay does, to this very moment. */
  const publish = async (): Promise<void> => {
    const writer = new EventStreamWriter(admin, DATA);
    const events = await db.store.readAll({ after: publishedTo, limit: 10_000, categories: ['data-stream'] });
    const state = await writer.state();
    const outcome = await writer.publish(events, 'g1', publishedTo, state!.lastSequence);
    expect(outcome).toMatchObject({ ok: true });
    publishedTo = events.at(-1)?.globalPosition ?? publishedTo;
  };

  /** After a restart of the broker: connected again, and JetStream answers. */
  const reachable = (): Promise<void> =>
    until('JetStream answers', async () => {
      try {
        admin.assertConnected();
        await (await admin.streams).streams.info(DATA);
        return true;
      } catch {
        return false;
      }
    });

  const effect = (consumer: string) => async (events: readonly AnyStoredEvent[], uow: UnitOfWork) => {
    for (const event of events) {
      await uow.query('INSERT INTO public.effect (consumer, stream_id, version) VALUES ($1, $2, $3)', [
        consumer,
        event.streamId,
        event.streamVersion,
      ]);
    }
  };
  const effects = async (consumer: string, id: string): Promise<string[]> => {
    const { rows } = await db.pool.query<{ version: bigint }>(
      'SELECT version FROM public.effect WHERE consumer = $1 AND stream_id = $2 ORDER BY n',
      [consumer, streamId('data-stream', id)],
    );
    return rows.map((row) => String(row.version));
  };
  const versions = (count: number): string[] => Array.from({ length: count }, (_, i) => String(i + 1));

  const start = async (definition: Partial<LaneConsumerDefinition> & { name: string }): Promise<LaneConsumer> => {
    const consumer = new LaneConsumer(
      service,
      { category: 'data-stream', types: ['RecordReceived'], handle: effect(definition.name), ...definition },
      { lane: db.lanes, deadLetter: db.lanes },
    );
    consumers.push(consumer);
    await consumer.start();
    return consumer;
  };
  const infoOf = async (name: string) => (await admin.streams).consumers.info(DATA, name);
  const settled = (name: string): Promise<void> =>
    until(`${name} has nothing pending`, async () => {
      const info = await infoOf(name).catch(() => null);
      return info !== null && info.num_ack_pending === 0 && info.num_pending === 0;
    });

  it('handles every stream in order, once, streams in parallel', async () => {
    const ids = Array.from({ length: 12 }, newId);
    await start({ name: 'order' });
    for (let round = 0; round < 5; round++) {
      await Promise.all(ids.map((id) => append(id, 2)));
      await publish();
    }
    await settled('order');
    for (const id of ids) expect(await effects('order', id)).toEqual(versions(10));
  });

  it('a message that comes again after its commit has no effect (nats#8036, nats#3996)', async () => {
    const id = newId();
    await append(id, 3);
    await publish();
    let commits = 0;
    const consumer = await start({
      name: 'again',
      ackWaitMs: 1000,
      handle: async (events, uow) => {
        await effect('again')(events, uow);
        // The broker dies before it can hear the acknowledgement of the first commit.
        if (events.some((e) => e.streamId === streamId('data-stream', id)) && commits++ === 0)
          await broker.killServer();
      },
    });
    await until('committed', async () => (await effects('again', id)).length === 3);
    await broker.startServer();
    await reachable();
    await settled('again');
    expect(await effects('again', id)).toEqual(versions(3));
    await consumer.stop();
  });

  it('delivers on through restarts of the broker under load (nats#2488, nats.node#570)', async () => {
    const ids = Array.from({ length: 4 }, newId);
    await start({ name: 'restarts', ackWaitMs: 1000 });
    for (let round = 1; round <= 4; round++) {
      await Promise.all(ids.map((id) => append(id, 5)));
      await publish();
      await (round % 2 === 0 ? broker.stopServer() : broker.killServer());
      await broker.startServer();
      await reachable();
    }
    await until('all handled', async () => {
      for (const id of ids) if ((await effects('restarts', id)).length < 20) return false;
      return true;
    });
    for (const id of ids) expect(await effects('restarts', id)).toEqual(versions(20));
  });

  it('runs a step of ten times the ack wait once, and what waits behind it once (lightdash#21033, watermill-nats#37)', async () => {
    const ids = [newId(), newId()];
    const calls: string[] = [];
    for (const id of ids) await append(id);
    await publish();
    await start({
      name: 'long',
      concurrency: 1,
      longWork: true,
      ackWaitMs: 200,
      handle: async (events, uow) => {
        if (ids.some((id) => events[0]!.streamId === streamId('data-stream', id))) {
          calls.push(events[0]!.streamId);
          await delay(calls.length === 1 ? 2000 : 400);
        }
        await effect('long')(events, uow);
      },
    });
    await until('both handled', async () => (await effects('long', ids[1]!)).length === 1);
    await settled('long');
    expect(calls.sort()).toEqual(ids.map((id) => streamId('data-stream', id)).sort());
  });

  it('sets a poisoned message aside once, parks its lane, lets others flow (nestjs-jetstream#180)', async () => {
    const [bad, good] = [newId(), newId()];
    let healed = false;
    await start({
      name: 'poison',
      lookForResumedMs: 50,
      handle: async (events, uow) => {
        if (!healed && events.some((e) => e.streamId.endsWith(bad) && e.streamVersion === 2n)) {
          throw new InvalidInput([{ path: 'prompt', message: 'poisoned' }]);
        }
        await effect('poison')(events, uow);
      },
    });
    await append(bad, 3);
    await append(good, 3);
    await publish();
    await settled('poison');
    await append(bad);
    await append(good);
    await publish();
    await settled('poison');
    expect(await effects('poison', bad)).toEqual(['1']);
    expect(await effects('poison', good)).toEqual(versions(4));
    const letters = await db.lanes.deadLetters('poison');
    expect(letters.map(({ streamId: s, version, error }) => ({ s, version, error }))).toEqual([
      { s: streamId('data-stream', bad), version: 2n, error: expect.stringContaining('poisoned') },
    ]);
    // Opened again too early, it is parked again, under the same letter; nothing is lost or done twice.
    await db.lanes.resume('poison', streamId('data-stream', bad));
    await until('parked again', async () => (await db.lanes.deadLetters('poison')).length === 1);
    expect((await db.lanes.deadLetters('poison'))[0]).toMatchObject({ version: 2n });
    expect(await effects('poison', bad)).toEqual(['1']);
    // After the cause is mended the lane moves by itself, in order, from the log: no new event has to come.
    healed = true;
    await db.lanes.resume('poison', streamId('data-stream', bad));
    await until('worked off', async () => (await effects('poison', bad)).length >= 4);
    expect(await effects('poison', bad)).toEqual(versions(4));
    // And what comes later follows by message, as ever.
    await append(bad);
    await publish();
    await settled('poison');
    expect(await effects('poison', bad)).toEqual(versions(5));
    expect(await db.lanes.resumed('poison')).toEqual([]);
  });

  it('gives a message whose handler threw back and counts the attempt; nothing depends on max-deliver (nest#10617, nest#4241, nats#5564, nats#6905)', async () => {
    const id = newId();
    let failures = 0;
    await append(id);
    await publish();
    await start({
      name: 'retry',
      handle: async (events, uow) => {
        if (events[0]!.streamId.endsWith(id) && failures < 4) {
          failures += 1;
          throw new Error('not yet');
        }
        await effect('retry')(events, uow);
      },
    });
    await until('counted', async () => {
      const { rows } = await db.pool.query<{ attempts: number }>(
        `SELECT attempts FROM es.consumer_lane WHERE consumer = 'retry' AND stream_id = $1`,
        [streamId('data-stream', id)],
      );
      return (rows[0]?.attempts ?? 0) >= 2;
    });
    await until('handled at last', async () => (await effects('retry', id)).length === 1);
    await settled('retry');
    expect(failures).toBe(4);
    expect((await infoOf('retry')).config.max_deliver).toBe(-1);
  });

  it('parks the lane after too many attempts', async () => {
    const id = newId();
    await append(id);
    await publish();
    await start({
      name: 'hopeless',
      maxAttempts: 3,
      handle: async (events, uow) => {
        if (events[0]!.streamId.endsWith(id)) throw new Error('never');
        await effect('hopeless')(events, uow);
      },
    });
    await until('parked', async () => (await db.lanes.deadLetters('hopeless')).length === 1);
    await settled('hopeless');
    expect(await db.lanes.deadLetters('hopeless')).toMatchObject([{ version: 1n, attempts: 3, error: 'Error: never' }]);
  });

  it('a message that is no event, or of another type, stops nothing (nest#3082)', async () => {
    const id = newId();
    const problems: string[] = [];
    const consumer = new LaneConsumer(
      service,
      {
        name: 'foreign',
        category: 'data-stream',
        types: ['RecordReceived', 'TrainingTriggered'],
        handle: effect('foreign'),
      },
      { lane: db.lanes, deadLetter: db.lanes, onProblem: (line) => problems.push(line) },
    );
    consumers.push(consumer);
    await consumer.start();
    await admin.jetStream.publish(`hotbed.v1.data-stream.${tenant}.${id}.RecordReceived`, 'boo');
    await append(id);
    await publish();
    await settled('foreign');
    expect(await effects('foreign', id)).toEqual(['1']);
    expect(problems).toEqual([expect.stringContaining('is no event; set aside')]);
  });

  it('refuses a consumer that exists with another configuration', async () => {
    await start({ name: 'drift' });
    await expect(start({ name: 'drift', ackWaitMs: 1234 })).rejects.toThrow(/consumer.ack_wait.*delete the consumer/);
  });

  it('leaves as many consumers after restarts as before, and rings what is new (aihub-core#1828)', async () => {
    const rings: Ring[] = [];
    const cycle = async (): Promise<void> => {
      const consumer = await start({ name: 'count' });
      const bell = new Doorbell(service, { listener: 'worker-1', category: 'data-stream', ring: (r) => rings.push(r) });
      await bell.start();
      const id = newId();
      await append(id);
      await publish();
      await until('rung', () => rings.some((ring) => ring.streamId === streamId('data-stream', id)));
      bell.stop();
      await consumer.stop();
    };
    const count = async (): Promise<number> => (await (await admin.streams).streams.info(DATA)).state.consumer_count;
    await cycle();
    const before = await count();
    for (let i = 0; i < 4; i++) await cycle();
    expect(await count()).toBe(before);
    expect(rings).toHaveLength(5);
    expect(rings[0]).toMatchObject({ type: 'RecordReceived', tenantId: tenant, streamVersion: 1n });
  });

  it('SIGTERM in mid-handler: committed, acknowledged, exit 0 (nest#12913)', async () => {
    const id = newId();
    // Alone in the stream, so that what is pending afterwards is this message.
    await (await admin.streams).streams.purge(DATA);
    await append(id);
    await publish();
    const script = join(broker.folder, 'child.ts');
    const path = (...parts: string[]): string => JSON.stringify(join(__dirname, ...parts));
    writeFileSync(
      script,
      `const { Broker } = require(${path('broker.ts')});
       const { LaneConsumer } = require(${path('lane-consumer.ts')});
       const { runApp } = require(${path('..', '..', 'runtime', 'src', 'run-app.ts')});
       const store = require(${path('..', '..', 'event-store', 'src', 'index.ts')});
       const wait = (ms: number) => new Promise((r) => setTimeout(r, ms));
       runApp('child', async () => {
         const broker = await Broker.connect({ url: ${JSON.stringify(broker.url)}, name: 'child',
           ...${JSON.stringify(broker.users.credentials('ingest'))} });
         const pool = store.createPool(${JSON.stringify(db.url)}, { applicationName: 'child' });
         const blobs = new store.FileBlobStore({ root: ${JSON.stringify(db.blobFolder)} });
         const lanes = new store.PgConsumerLane(new store.PgTransactions(pool, blobs), blobs);
         const consumer = new LaneConsumer(broker, { name: 'sigterm', category: 'data-stream', types: ['RecordReceived'],
           handle: async (events: any[], uow: any) => {
             if (events[0].streamId.endsWith(${JSON.stringify(id)})) { process.stdout.write('IN HANDLER\\n'); await wait(700); }
             for (const e of events) await uow.query(
               'INSERT INTO public.effect (consumer, stream_id, version) VALUES ($1, $2, $3)', ['sigterm', e.streamId, e.streamVersion]);
           } }, { lane: lanes, deadLetter: lanes });
         return { name: 'child', start: () => consumer.start(),
           stop: async () => { await consumer.stop(); await broker.close(); await pool.end(); } };
       });`,
    );
    const hook = join(__dirname, '..', '..', 'runtime', 'testing', 'ts-hook.js');
    const child = spawn(process.execPath, ['-r', hook, script], {
      stdio: ['ignore', 'pipe', 'inherit'],
      env: { PATH: process.env['PATH'] },
    });
    const exited = new Promise<number | null>((resolve) => child.once('exit', resolve));
    let output = '';
    child.stdout.on('data', (chunk: Buffer) => (output += chunk.toString()));
    await until('in the handler', () => output.includes('IN HANDLER'));
    child.kill('SIGTERM');
    // The log's error lines, should there be any.
    expect([await exited, output.match(/.*"level":[56]0.*/g)]).toEqual([0, null]);
    expect(await effects('sigterm', id)).toEqual(['1']);
    expect((await infoOf('sigterm')).num_ack_pending).toBe(0);
  });
});
