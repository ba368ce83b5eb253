import { inspect } from 'node:util';
import { Registry } from 'prom-client';
import { newId } from '#hotbed/contracts';
import { LogListener, RelayCursors } from '#hotbed/event-store';
import { aStreamOfRecords, withTestDatabase } from '#hotbed/event-store/testing';
import { EVENT_STREAMS, EVENT_STREAM_LIMITS, EventStreamWriter } from '#hotbed/messaging';
import { until, withTestBroker } from '#hotbed/messaging/testing';
import { Health, silentLogger } from '#hotbed/runtime';
import { Leadership } from './leadership';
import { RelayHost } from './relay-host';

jest.setTimeout(60_000);

describe('a broker without room on its disk', () => {
  const db = withTestDatabase();
  const broker = withTestBroker();

  it('is reported, keeps no append waiting, and has everything once there is room (nats#7654)', async () => {
    await broker.stopServer();
    await broker.startServer({ wiped: true, maxFileStore: 64 * 1024 });
    const connection = await broker.as('relay');
    const admin = await broker.as('admin');
    const wake = await LogListener.start(db.url);
    const health = new Health();
    const logger = silentLogger();
    const [errors, warnings] = [jest.spyOn(logger, 'error'), jest.spyOn(logger, 'warn')];
    const relay = new RelayHost({
      store: db.store,
      cursors: new RelayCursors(db.pool),
      writers: EVENT_STREAMS.map((stream) => new EventStreamWriter(connection, stream)),
      leadership: new Leadership(db.url, db.pool),
      wake,
      maxAgeMs: EVENT_STREAM_LIMITS.maxAgeMs,
      host: { logger, metrics: new Registry(), health },
      onReconnect: (listener) => connection.onReconnect(listener),
      verifyEveryMs: 100,
      close: async () => {
        await connection.close();
        await wake.close();
      },
    });
    relay.onApplicationBootstrap();
    const report = async () => (await health.ready()).checks['relay streams'] ?? '';
    const held = async () => {
      const manager = await admin.streams;
      return (await manager.streams.info('HOTBED_DATA').catch(() => null))?.state.messages ?? 0;
    };

    for (let i = 0; i < 4; i++) await db.store.append(aStreamOfRecords(newId(), newId(), 100));
    const said = () => [...errors.mock.calls, ...warnings.mock.calls].map(([what]) => inspect(what)).join();
    await until('the relay says why', () => /insufficient storage/i.test(said()));
    expect(await report()).not.toBe('ok');
    expect(await held()).toBeLessThan(400);
    await db.store.append(aStreamOfRecords(newId(), newId(), 1));

    await broker.stopServer();
    await broker.startServer();
    await until('everything is delivered', async () => (await held()) === 401);
    await until('the relay is well', async () => (await report()) === 'ok');
    await relay.onModuleDestroy();
    await relay.beforeApplicationShutdown();
  });
});
