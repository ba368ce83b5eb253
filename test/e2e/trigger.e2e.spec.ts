/** From a record on JetStream to a training run, and the reins of an experiment: pause, resume, cancel. */
import type { DataStreamView, ExperimentSummary } from '#hotbed/contracts';
import { aProducer, aTenant, type Tenant } from '../support/a-tenant';
import { eventually } from '../support/eventually';
import { RunningPlatform } from '../support/running-platform';
import { RECORDS, aSmallExperiment, untilExperiment, untilTrained } from '../support/small-training';

jest.setTimeout(240_000);

let platform: RunningPlatform;
let tenant: Tenant;
let producer: Awaited<ReturnType<typeof aProducer>>;
let stream: DataStreamView;

beforeAll(async () => {
  platform = await RunningPlatform.start();
  tenant = await aTenant(platform, 'growers');
  stream = await tenant.door.made('POST', '/v1/streams', { name: 'words' });
  producer = await aProducer(platform, tenant);
});
afterAll(async () => {
  await producer?.close();
  await platform?.remove();
});

const counts = async (): Promise<{ records: number; rejected: number }> => {
  const { records, rejected } = await tenant.door.made<DataStreamView>('GET', '/v1/streams/words');
  return { records, rejected };
};
const untilCounts = (records: number, rejected: number) =>
  eventually(`${records} records and ${rejected} rejected`, async () => {
    const seen = await counts();
    return seen.records === records && seen.rejected === rejected;
  });

describe('an experiment that is triggered by a count', () => {
  it('waits for the last record it needs, then trains by itself', async () => {
    const trigger = { kind: 'count', records: RECORDS.length };
    await tenant.door.made('POST', '/v1/experiments', aSmallExperiment({ trigger }));
    for (const { key, content } of RECORDS.slice(0, -1)) {
      expect(await producer.publish(stream.dataStreamId, content, key)).toBe(false);
    }
    await untilCounts(RECORDS.length - 1, 0);
    const waiting = await tenant.door.made<ExperimentSummary>('GET', '/v1/experiments/upper');
    expect(waiting).toMatchObject({ state: 'idle', runs: 0 });

    const last = RECORDS.at(-1)!;
    await producer.publish(stream.dataStreamId, last.content, last.key);
    const view = await untilTrained(tenant.door, 'upper');
    expect(view).toMatchObject({ runs: 1, totalSteps: 4, latestVersion: expect.any(Number) });
  });

  it('adds nothing for a key that it has, from the broker or by HTTP', async () => {
    for (const { key, content } of RECORDS) await producer.publish(stream.dataStreamId, content, key);
    const { records } = await tenant.door.made('POST', '/v1/streams/words/records', { records: RECORDS });
    expect(records.map((record: { outcome: string }) => record.outcome)).toEqual(RECORDS.map(() => 'duplicate'));
    // A record behind them has arrived: so has everything before it.
    await producer.publish(stream.dataStreamId, { prompt: 'zip>', answer: 'ZIP' }, 'one-more');
    await untilCounts(RECORDS.length + 1, 0);
    const view = await tenant.door.made<ExperimentSummary>('GET', '/v1/experiments/upper');
    expect(view).toMatchObject({ state: 'idle', runs: 1 });
  });

  it('records why a record was refused, and goes on with the next', async () => {
    const wrong = [{ prompt: '' }, { answer: 'no prompt' }, 'no object', { prompt: 'a', surprise: 1 }];
    for (const record of wrong) await producer.publish(stream.dataStreamId, record);
    await producer.publish(stream.dataStreamId, { prompt: 'zoo>', answer: 'ZOO' }, 'good');
    await untilCounts(RECORDS.length + 2, wrong.length);
    const feed = await tenant.door.events(
      '/v1/events?after=0&types=RecordRejected',
      (text) => text.split('event: RecordRejected').length > wrong.length,
    );
    for (const path of ['record.prompt', '"path":"record"']) expect(feed).toContain(path);
    expect(feed).not.toContain('RecordReceived');
  });

  it('starts a run by hand over what is left, and says when nothing is', async () => {
    const answer = await tenant.door.post('/v1/experiments/upper/trigger');
    expect(answer).toMatchObject({ status: 202, body: { records: 2 } });
    await untilTrained(tenant.door, 'upper', 2);
    expect(await tenant.door.refusal('POST', '/v1/experiments/upper/trigger')).toMatchObject({
      status: 422,
      code: 'no_new_records',
    });
  });
});

describe('an experiment that is held', () => {
  it('stops after a step, goes on where it was, and ends for good when it is cancelled', async () => {
    await tenant.door.made('POST', '/v1/experiments', aSmallExperiment({ name: 'long', steps: 500 }));
    await eventually('ingest knows the experiment', async () => {
      const { status, body } = await tenant.door.post('/v1/experiments/long/trigger');
      if (status !== 202 && status !== 503) throw new Error(JSON.stringify(body));
      return status === 202;
    });
    await untilExperiment(tenant.door, 'long', 'trains', (view) => view.steps.length >= 2);

    expect(await tenant.door.post('/v1/experiments/long/pause')).toMatchObject({ status: 200 });
    const held = await untilExperiment(tenant.door, 'long', 'is paused', (view) => view.state === 'paused');
    // The step that was under way may end; after it nothing may move while another experiment gets its turn.
    await tenant.door.made('POST', '/v1/experiments', aSmallExperiment({ name: 'other' }));
    await eventually('ingest knows the other experiment', async () => {
      const { status } = await tenant.door.post('/v1/experiments/other/trigger');
      return status === 202;
    });
    await untilTrained(tenant.door, 'other');
    const still = await tenant.door.made('GET', '/v1/experiments/long');
    expect(still.state).toBe('paused');
    expect(still.steps.length).toBeLessThanOrEqual(held.steps.length + 1);

    await tenant.door.made('POST', '/v1/experiments/long/resume');
    const going = await untilExperiment(tenant.door, 'long', 'goes on', (v) => v.steps.length > still.steps.length);
    // Every step once, in order: none was done again and none was left out.
    expect(going.steps.map((step) => step.step)).toEqual(going.steps.map((_, i) => i));

    await tenant.door.made('POST', '/v1/experiments/long/cancel');
    await untilExperiment(tenant.door, 'long', 'is cancelled', (view) => view.state === 'cancelled');
    for (const action of ['resume', 'pause', 'trigger']) {
      expect(await tenant.door.refusal('POST', `/v1/experiments/long/${action}`)).toMatchObject({ status: 422 });
    }
  });
});
