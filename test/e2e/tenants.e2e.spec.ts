/**
 * A7: no tenant can read, name, or affect another tenant's data, adapters or results.
 *
 * 1. At every HTTP door another tenant's name or id is answered like one that never existed.
 * 2. Another tenant's events, blobs and replies cannot be seen.
 * 3. With a tenant's broker credentials nothing of another tenant can be published, asked or heard.
 * 4. Both may use the same names.
 */
import { connect, type NatsConnection } from 'nats';
import type { AdapterVersionView, DataStreamView, ExperimentSummary } from '#hotbed/contracts';
import { ingestStreamName, ingestSubject, newId, rpcSubject } from '#hotbed/contracts';
import { FileBlobStore } from '#hotbed/event-store';
import { Broker, RpcClient } from '#hotbed/messaging';
import { join } from 'node:path';
import { aTenant, credentialsOf, type Tenant } from '../support/a-tenant';
import { refusalOf, type Refusal } from '../support/door';
import { eventually } from '../support/eventually';
import { RunningPlatform } from '../support/running-platform';
import { RECORDS, aSmallExperiment, untilTrained } from '../support/small-training';

jest.setTimeout(240_000);

let platform: RunningPlatform;
let anna: Tenant;
let ben: Tenant;
/** What Ben has, and Anna must not get at. */
let bens: { stream: DataStreamView; experiment: ExperimentSummary; version: AdapterVersionView; recordId: string };

beforeAll(async () => {
  platform = await RunningPlatform.start();
  anna = await aTenant(platform, 'anna');
  ben = await aTenant(platform, 'ben');
  const stream = await ben.door.made<DataStreamView>('POST', '/v1/streams', { name: 'secret-words' });
  const { records } = await ben.door.made('POST', '/v1/streams/secret-words/records', { records: RECORDS });
  const experiment = await ben.door.made<ExperimentSummary>(
    'POST',
    '/v1/experiments',
    aSmallExperiment({ name: 'secret', dataStream: 'secret-words', trigger: { kind: 'count', records: 12 } }),
  );
  await untilTrained(ben.door, 'secret');
  const { version } = await ben.door.made('GET', '/v1/adapters/secret/resolve?ref=latest');
  const lineage = await ben.door.made('GET', `/v1/adapters/secret/versions/${version.version}/lineage`);
  expect(lineage.influences.length).toBeGreaterThan(0);
  bens = { stream, experiment, version, recordId: records[0].recordId };
});
afterAll(() => platform?.remove());

/** A refusal with the asked name or id taken out: what is left must not tell whether it exists. */
function without(name: string, { status, kind, code, message, fields }: Refusal) {
  return { status, kind, code, message: message.replaceAll(name, '*'), fields };
}

describe('with another tenant’s key, HTTP', () => {
  const named: [string, string, (ref: string) => unknown][] = [
    ['GET', '/v1/streams/*', () => undefined],
    ['GET', '/v1/streams/*/records', () => undefined],
    ['POST', '/v1/streams/*/records', () => ({ records: [{ content: { prompt: 'from anna' } }] })],
    ['GET', '/v1/experiments/*', () => undefined],
    ['POST', '/v1/experiments/*/trigger', () => ({})],
    ['POST', '/v1/experiments/*/pause', () => ({})],
    ['POST', '/v1/experiments/*/resume', () => ({})],
    ['POST', '/v1/experiments/*/cancel', () => ({})],
    ['POST', '/v1/experiments', (ref) => aSmallExperiment({ name: 'thief', dataStream: ref })],
    ['GET', '/v1/adapters/*', () => undefined],
    ['GET', '/v1/adapters/*/versions', () => undefined],
    ['GET', '/v1/adapters/*/resolve?ref=latest', () => undefined],
    ['GET', '/v1/adapters/*/versions/1/lineage', () => undefined],
    ['GET', '/v1/adapters/*/aliases/stable/history', () => undefined],
    ['POST', '/v1/adapters/*/aliases/stable', () => ({ version: 1 })],
    ['GET', '/v1/adapters/*@latest/peft/adapter_model.safetensors', () => undefined],
    ['GET', '/v1/adapters/*@1/peft/adapter_config.json', () => undefined],
    ['POST', '/v1/adapters/*@latest/sample', () => ({ prompt: 'cat>' })],
  ];

  it.each(named)('answers %s %s as if the name and the id did not exist', async (method, path, body) => {
    const refs = path.startsWith('/v1/streams')
      ? ['secret-words', bens.stream.dataStreamId]
      : path.startsWith('/v1/adapters')
        ? ['secret', bens.version.adapterId]
        : path === '/v1/experiments'
          ? ['secret-words', bens.stream.dataStreamId]
          : ['secret', bens.experiment.experimentId];
    const ask = async (ref: string) => without(ref, await anna.door.refusal(method, path.replace('*', ref), body(ref)));
    const unknown = [await ask('never-was'), await ask(newId())];
    expect(unknown[0]).toMatchObject({ status: 404, kind: 'NotFound' });
    expect([await ask(refs[0]!), await ask(refs[1]!)]).toEqual(unknown);
  });

  it('knows nothing of another tenant’s record', async () => {
    const [stranger, own] = [newId(), bens.recordId];
    const ask = async (id: string) => without(id, await anna.door.refusal('GET', `/v1/records/${id}/versions`));
    expect(await ask(own)).toEqual(await ask(stranger));
    expect((await ben.door.get(`/v1/records/${own}/versions`)).status).toBe(200);
  });

  it('lists nothing of another tenant', async () => {
    expect((await anna.door.get('/v1/streams')).body).toMatchObject({ dataStreams: [] });
    expect((await anna.door.get('/v1/experiments')).body).toMatchObject({ experiments: [] });
    expect((await anna.door.get('/v1/adapters')).body).toMatchObject({ adapters: [] });
  });

  it('makes no tenant and no key', async () => {
    for (const [path, body] of [
      ['/v1/tenants', { name: 'carl' }],
      [`/v1/tenants/${ben.tenantId}/keys`, {}],
      [`/v1/tenants/${anna.tenantId}/keys`, { role: 'admin' }],
    ] as const) {
      expect(await anna.door.refusal('POST', path, body)).toMatchObject({ status: 403, kind: 'Forbidden' });
    }
    expect(refusalOf(await anna.door.ask('DELETE', `/v1/tenants/keys/${newId()}`))).toMatchObject({ status: 403 });
  });

  it('lets both use the same names, apart from each other', async () => {
    const stream = await anna.door.made<DataStreamView>('POST', '/v1/streams', { name: 'secret-words' });
    expect(stream.dataStreamId).not.toBe(bens.stream.dataStreamId);
    const experiment = await anna.door.made<ExperimentSummary>(
      'POST',
      '/v1/experiments',
      aSmallExperiment({ name: 'secret', dataStream: 'secret-words' }),
    );
    const { adapter } = await eventually("the registry knows Anna's adapter", async () => {
      const { status, body } = await anna.door.get('/v1/adapters/secret');
      return status === 200 && body;
    });
    expect(adapter).toMatchObject({ adapterId: experiment.adapterId, latestVersion: null });
    expect(await anna.door.refusal('GET', '/v1/adapters/secret/resolve?ref=latest')).toMatchObject({ status: 404 });
    expect((await ben.door.get('/v1/streams/secret-words')).body).toMatchObject({ records: RECORDS.length });
  });

  it('sends the events of the own tenant only', async () => {
    await anna.door.made('POST', '/v1/streams', { name: 'last-one' });
    const feed = await anna.door.events('/v1/events?after=0', (text) => text.includes('last-one'));
    for (const id of [ben.tenantId, bens.stream.dataStreamId, bens.version.adapterId, bens.experiment.experimentId]) {
      expect(feed).not.toContain(id);
    }
    for (const { content } of RECORDS) expect(feed).not.toContain(content.prompt);
  });
});

describe('a tenant’s blobs', () => {
  it('are not found under another tenant, even by digest', async () => {
    const blobs = new FileBlobStore({ root: join(platform.dataDir, 'blobs') });
    const { digest } = bens.version.weightsFile;
    expect((await blobs.get(ben.tenantId, digest)).length).toBe(bens.version.weightsFile.size);
    await expect(blobs.get(anna.tenantId, digest)).rejects.toMatchObject({ kind: 'NotFound' });
    await expect(blobs.pathOf(anna.tenantId, digest)).rejects.toMatchObject({ kind: 'NotFound' });
  });
});

describe('a tenant’s broker credentials', () => {
  const open: NatsConnection[] = [];
  afterEach(async () => {
    for (const connection of open.splice(0)) await connection.close();
  });

  async function as(tenant: Tenant, kind: 'producer' | 'reader'): Promise<NatsConnection> {
    const { user, password } = (await credentialsOf(platform, tenant))[kind];
    const connection = await eventually(`the broker knows ${user}`, () =>
      connect({
        servers: platform.announced.natsUrl,
        user,
        pass: password,
        inboxPrefix: `_INBOX.${user}`,
        reconnect: false,
      }).catch(() => null),
    );
    open.push(connection);
    return connection;
  }

  it.each(['producer', 'reader'] as const)('let the %s publish on no subject of another tenant', async (kind) => {
    const nats = await as(anna, kind);
    for (const subject of [
      ingestSubject(ben.tenantId, bens.stream.dataStreamId),
      rpcSubject(ben.tenantId, 'registry', 'resolve'),
      rpcSubject(ben.tenantId, 'orchestrator', 'cancel-experiment'),
      rpcSubject(anna.tenantId, 'orchestrator', 'cancel-experiment'),
      `hotbed.v1.data-stream.${ben.tenantId}.${bens.stream.dataStreamId}.RecordReceived`,
      `$JS.API.STREAM.PURGE.${ingestStreamName(ben.tenantId)}`,
    ]) {
      await expect(nats.request(subject, '{}', { timeout: 2_000 })).rejects.toThrow(/permissions violation/i);
    }
    expect((await ben.door.get('/v1/streams/secret-words')).body).toMatchObject({ records: 12, rejected: 0 });
  });

  it('do not put a record into another tenant’s stream by its id', async () => {
    const nats = await as(anna, 'producer');
    await nats.request(ingestSubject(anna.tenantId, bens.stream.dataStreamId), '{"prompt":"hi>"}', { timeout: 5_000 });
    await anna.door.events('/v1/events?after=0&types=RecordRejected', (text) =>
      text.includes('is no data stream of this tenant'),
    );
    expect((await ben.door.get('/v1/streams/secret-words')).body).toMatchObject({ records: 12, rejected: 0 });
  });

  it('let the reader ask about its own tenant, in which the other’s names do not exist', async () => {
    const { reader } = await credentialsOf(platform, anna);
    const broker = await Broker.connect({ url: platform.announced.natsUrl, ...reader, name: 'anna' });
    try {
      const rpc = new RpcClient(broker);
      for (const adapter of [bens.version.adapterId, 'never-was']) {
        const question = rpc.request(anna.tenantId, 'registry', 'resolve', { adapter, ref: 'latest' });
        await expect(question).rejects.toMatchObject({ kind: 'NotFound', code: 'adapter_not_found' });
      }
    } finally {
      await broker.close();
    }
  });

  it.each(['producer', 'reader'] as const)('let the %s hear no reply, record or event of another', async (kind) => {
    const nats = await as(anna, kind);
    for (const subject of [
      '>',
      `_INBOX.reader-${ben.tenantId}.>`,
      `_INBOX.producer-${ben.tenantId}.>`,
      '_INBOX.gateway.>',
      `hotbed.ingest.${ben.tenantId}.*`,
      `hotbed.rpc.${ben.tenantId}.>`,
      'hotbed.v1.>',
    ]) {
      const heard = (async () => {
        for await (const message of nats.subscribe(subject)) throw new Error(`heard ${message.subject}`);
      })();
      await expect(heard).rejects.toThrow(/permissions violation/i);
    }
  });
});
