import { streamId } from '#hotbed/contracts';
import { ADAPTER, CHECKPOINT, RecordedEvents, WORKER } from '#hotbed/fold/testing';
import { EventStreamWriter, type Broker } from '#hotbed/messaging';
import { withTestBroker } from '#hotbed/messaging/testing';
import { silentLogger } from '#hotbed/runtime';
import { until } from '../testing/scripted-log';
import { BrokerDoorbell } from './broker-doorbell';

jest.setTimeout(60_000);

const broker = withTestBroker();
const STREAM = streamId('adapter', ADAPTER);
let doorbell: BrokerDoorbell | null = null;

afterEach(async () => {
  await doorbell?.stop();
  doorbell = null;
});

function aDoorbell(): { rings: () => number } {
  let rings = 0;
  doorbell = new BrokerDoorbell({
    nats: { url: broker.url, ...broker.users.credentials('gpu-worker') },
    listener: 'worker-1',
    ring: () => rings++,
    logger: silentLogger(),
  });
  return { rings: () => rings };
}

async function emptyStreams(relay: Broker): Promise<EventStreamWriter> {
  await new EventStreamWriter(relay, 'HOTBED_ROLLOUT').recreate('g1');
  const writer = new EventStreamWriter(relay, 'HOTBED_ADAPTER');
  await writer.recreate('g1');
  return writer;
}

const enough = (n: number) => (rings: number) => rings >= n;

describe('the doorbell of a worker', () => {
  it('rings once connected, then for every accepted operation and not for its own outcomes', async () => {
    const writer = await emptyStreams(await broker.as('relay'));
    const { rings } = aDoorbell();
    await until(rings, enough(1), 'the ring at connection');
    const events = new RecordedEvents();
    const origin = { kind: 'client' as const, sessionId: 's' };
    const accepted = { adapterId: ADAPTER, operation: CHECKPOINT, numericsId: 'f32-1', origin };
    events.record(STREAM, 'OperationAccepted', { ...accepted, opIndex: '1' });
    events.record(STREAM, 'OperationFailed', {
      adapterId: ADAPTER,
      opIndex: '1',
      kind: 'checkpoint',
      workerId: WORKER,
      leaseEpoch: '1',
      stateDigest: '00'.repeat(32),
      code: 'x',
      message: 'x',
    });
    events.record(STREAM, 'OperationAccepted', { ...accepted, opIndex: '2' });
    expect(await writer.publish(events.all, 'g1', 0n, 0)).toMatchObject({ ok: true });
    await until(rings, enough(3), 'two rings');
    expect(rings()).toBe(3);
  });

  it('comes to life when a broker does that was not there at the start', async () => {
    await broker.stopServer();
    const { rings } = aDoorbell();
    await broker.startServer();
    await until(rings, enough(1), 'the ring at connection');
  });
});
