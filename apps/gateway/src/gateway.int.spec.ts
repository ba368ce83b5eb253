import { createHash } from 'node:crypto';
import { request as httpRequest } from 'node:http';
import { Counter, Registry } from 'prom-client';
import { z } from 'zod';
import {
  DomainError,
  ERROR_KINDS,
  newId,
  streamId,
  SYSTEM_TENANT_ID,
  type BlobRef,
  type ErrorKind,
} from '#hotbed/contracts';
import { aStreamOfRecords, newEvent, withTestDatabase } from '#hotbed/event-store/testing';
import { RpcServer } from '#hotbed/messaging';
import { until, withTestBroker } from '#hotbed/messaging/testing';
import { Health, silentLogger } from '#hotbed/runtime';
import { KEY_CACHE_MS } from './auth/api-key.guard';
import { MAX_FEEDS_PER_TENANT } from './events/event-feed';
import { createGatewayApp, type GatewayApp } from './gateway.app';
import { HTTP_STATUS } from './http/domain-error.filter';
import { startEnvironment } from './testing/start-environment';

jest.setTimeout(60_000);

let gateway: GatewayApp;
const answering: RpcServer[] = [];
// Before the broker goes: hooks run in the order of their definition.
afterAll(async () => {
  await gateway.stop();
  await Promise.all(answering.map((server) => server.stop()));
});
const db = withTestDatabase();
const broker = withTestBroker();

const [tenantId, strangerId] = [newId(), newId()];
const MEMBER = 'hb_member';
const ADMIN = 'hb_admin';
const STRANGER = 'hb_stranger';
const health = new Health();
const metrics = new Registry();
const revoked = new Set<string>();
/** What was asked of the owning apps: `<tenant>/<command>` and the body. */
const asked: { tenantId: string; command: string; body: unknown }[] = [];
let readSamples: () => unknown = () => null;
let files: { weightsFile: BlobRef; configFile: BlobRef };

const callers = new Map(
  [
    { key: MEMBER, tenantId, tenantName: 'acting', role: 'member' },
    { key: ADMIN, tenantId, tenantName: 'acting', role: 'admin' },
    { key: STRANGER, tenantId: strangerId, tenantName: 'stranger', role: 'member' },
  ].map(({ key, ...caller }) => [createHash('sha256').update(key).digest('hex'), { key, keyId: newId(), ...caller }]),
);

/** Stands in for an app behind the door: what the door makes of its answers is what is tested here. */
async function answerFor(
  app: 'registry' | 'ingest' | 'orchestrator',
  handlers: Record<string, (body: never) => unknown>,
) {
  const server = new RpcServer(await broker.as(app), app);
  for (const [command, handle] of Object.entries(handlers)) {
    server.handle(command, z.unknown(), async (body, context) => {
      asked.push({ tenantId: context.tenantId, command, body });
      return handle(body as never);
    });
  }
  server.start(Object.keys(handlers));
  answering.push(server);
}

function authenticate({ keyDigest }: { keyDigest: string }) {
  const caller = callers.get(keyDigest);
  if (caller === undefined || revoked.has(caller.key)) {
    throw new DomainError('Unauthenticated', 'unknown_key', 'the API key is unknown or revoked');
  }
  const { key: _key, ...rest } = caller;
  return rest;
}

beforeAll(async () => {
  files = {
    weightsFile: await db.blobs.put(tenantId, Buffer.from('weights'), 'application/octet-stream'),
    configFile: await db.blobs.put(tenantId, Buffer.from('{"r":4}'), 'application/json'),
  };
  await answerFor('registry', {
    authenticate,
    resolve: ({ adapter }: { adapter: string }) => {
      if (adapter !== 'poet') throw new DomainError('NotFound', 'adapter_not_found', `no adapter "${adapter}"`);
      return { version: { adapterId: SYSTEM_TENANT_ID, version: 3, opIndex: '9', weightsDigest: 'w', ...files } };
    },
    'create-tenant': ({ name }: { name: string }) => ({ tenantId, name, created: true }),
    'issue-api-key': () => ({ keyId: newId() }),
    'revoke-api-key': ({ keyId }: { keyId: string }) => ({ keyId }),
  });
  await answerFor('ingest', {
    'get-data-stream': ({ dataStream }: { dataStream: string }) => {
      const [kind = '', retryAfterMs] = dataStream.split('~');
      if (kind === 'Bug') throw new Error('a secret of the inside');
      throw new DomainError(kind as ErrorKind, 'the_code', 'what to do', {
        fields: [{ path: 'a.b', message: 'wrong' }],
        context: { next: '7' },
        ...(retryAfterMs === undefined ? {} : { retryAfterMs: Number(retryAfterMs) }),
      });
    },
    'create-data-stream': (body) => body,
    'append-records': (body) => body,
    'list-data-streams': (body) => body,
  });
  await answerFor('orchestrator', {
    'request-samples': () => ({ requestId: SYSTEM_TENANT_ID, streamId: 'rollouts:x', requestVersion: '1', prompts: 1 }),
    'read-samples': () => readSamples(),
  });
  const env = startEnvironment(db, broker);
  gateway = (await createGatewayApp(env, { logger: silentLogger(), metrics, health })) as GatewayApp;
  await gateway.start();
}, 60_000);
beforeEach(() => asked.splice(0));

interface Answer {
  status: number;
  headers: Headers;
  body: { error?: { kind: string; code: string; message: string; fields: { path: string }[] } } & Record<
    string,
    unknown
  >;
}

async function http(
  method: string,
  path: string,
  options: { key?: string | null; body?: string; headers?: Record<string, string> } = {},
): Promise<Answer> {
  const { key = MEMBER, body, headers = {} } = options;
  const response = await fetch(`${gateway.url}${path}`, {
    method,
    headers: {
      ...(key === null ? {} : { authorization: `Bearer ${key}` }),
      ...(body === undefined ? {} : { 'content-type': 'application/json' }),
      ...headers,
    },
    ...(body === undefined ? {} : { body }),
  });
  return { status: response.status, headers: response.headers, body: (await response.json()) as Answer['body'] };
}

describe('errors', () => {
  it.each(ERROR_KINDS)('%s has a status, keeps its code and fields, and says when to come back', async (kind) => {
    const expected: Record<ErrorKind, number> = {
      InvalidInput: 400,
      Unauthenticated: 401,
      Forbidden: 403,
      NotFound: 404,
      Conflict: 409,
      IllegalState: 422,
      TooMany: 429,
      Unavailable: 503,
      EngineFault: 502,
    };
    const { status, headers, body } = await http('GET', `/v1/streams/${kind}`);
    expect(status).toBe(expected[kind]);
    expect(HTTP_STATUS[kind]).toBe(expected[kind]);
    expect(body.error).toMatchObject({
      kind,
      code: 'the_code',
      message: 'what to do',
      fields: [{ path: 'a.b', message: 'wrong' }],
      context: { next: '7' },
    });
    expect(headers.get('www-authenticate')).toBe(kind === 'Unauthenticated' ? 'Bearer' : null);
    expect(headers.get('retry-after')).toBe(kind === 'TooMany' || kind === 'Unavailable' ? '1' : null);
  });

  it.each([
    ['1', '1'],
    ['1001', '2'],
    ['30000', '30'],
  ])('that pass after %s ms say so in whole seconds', async (retryAfterMs, seconds) => {
    const { headers } = await http('GET', `/v1/streams/TooMany~${retryAfterMs}`);
    expect(headers.get('retry-after')).toBe(seconds);
  });

  it('that are bugs show nothing of the inside', async () => {
    const { status, body } = await http('GET', '/v1/streams/Bug');
    expect(status).toBe(500);
    expect(JSON.stringify(body)).not.toContain('secret');
    expect(body.error).toMatchObject({ kind: 'Bug', code: 'internal' });
  });

  it('name a route that does not exist', async () => {
    const { status, body } = await http('GET', '/v1/nothing', { key: null });
    expect(status).toBe(404);
    expect(body.error).toMatchObject({ kind: 'NotFound', code: 'route_not_found' });
  });

  it.each(['{', '{"name":', 'x'])('name the body where it is no JSON: %j', async (body) => {
    const answer = await http('POST', '/v1/streams', { body });
    expect(answer.status).toBe(400);
    expect(answer.body.error).toMatchObject({ kind: 'InvalidInput', fields: [{ path: 'body' }] });
    expect(asked.filter((a) => a.command === 'create-data-stream')).toEqual([]);
  });

  it('refuse a body of another type, and one that is too large before it is sent', async () => {
    const xml = await fetch(`${gateway.url}/v1/streams`, {
      method: 'POST',
      headers: { authorization: `Bearer ${MEMBER}`, 'content-type': 'application/xml' },
      body: '<a/>',
    });
    expect(xml.status).toBe(400);
    const tooLarge = await new Promise<{ status: number | undefined; text: string }>((resolve, reject) => {
      const request = httpRequest(`${gateway.url}/v1/streams`, {
        method: 'POST',
        headers: { authorization: `Bearer ${MEMBER}`, 'content-type': 'application/json', 'content-length': 9 << 20 },
      });
      request.on('error', reject);
      request.on('response', (response) => {
        let text = '';
        response.on('data', (part: Buffer) => (text += part.toString()));
        response.on('end', () => {
          request.destroy();
          resolve({ status: response.statusCode, text });
        });
      });
      request.write('{');
    });
    expect(tooLarge.status).toBe(400);
    expect(JSON.parse(tooLarge.text)).toMatchObject({ error: { code: 'body_too_large', fields: [{ path: 'body' }] } });
  });
});

describe('the API key', () => {
  const status = async (headers: Record<string, string>) =>
    (await fetch(`${gateway.url}/v1/streams`, { headers })).status;

  it('is asked for, and where it is missing or unknown the answer says how to send it', async () => {
    const missing = await http('GET', '/v1/streams', { key: null });
    expect(missing.status).toBe(401);
    expect(missing.headers.get('www-authenticate')).toBe('Bearer');
    expect(missing.body.error).toMatchObject({ code: 'missing_key' });
    const unknown = await http('GET', '/v1/streams', { key: 'hb_unknown' });
    expect(unknown.status).toBe(401);
    expect(unknown.body.error).toMatchObject({ code: 'unknown_key' });
  });

  it('is taken from either header, and from no malformed one', async () => {
    expect(await status({ authorization: `bearer ${MEMBER}` })).toBe(200);
    expect(await status({ 'x-api-key': MEMBER })).toBe(200);
    expect(await status({ authorization: MEMBER })).toBe(401);
    expect(await status({ authorization: `Bearer ${MEMBER} more` })).toBe(401);
    expect(await status({ authorization: 'Bearer ' })).toBe(401);
    expect(await status({ 'x-api-key': '' })).toBe(401);
  });

  it('decides the tenant, whatever the body says', async () => {
    await http('POST', '/v1/streams', { body: JSON.stringify({ name: 's', tenantId: strangerId }) });
    expect(asked.find((a) => a.command === 'create-data-stream')?.tenantId).toBe(tenantId);
    await http('POST', '/v1/streams/mine/records', {
      body: JSON.stringify({ dataStream: 'other', records: [] }),
      key: STRANGER,
    });
    const append = asked.find((a) => a.command === 'append-records')!;
    expect(append.tenantId).toBe(strangerId);
    expect(append.body).toMatchObject({ dataStream: 'mine' });
  });

  it('and an Idempotency-Key travel as headers', async () => {
    const headers = { 'idempotency-key': 'once' };
    await http('POST', '/v1/streams', { body: JSON.stringify({ name: 's' }), headers });
    expect(asked.find((a) => a.command === 'create-data-stream')?.body).toMatchObject({
      name: 's',
      idempotencyKey: 'once',
    });
  });

  it('that is revoked works no longer than the door remembers it', async () => {
    expect(await status({ authorization: `Bearer ${STRANGER}` })).toBe(200);
    revoked.add(STRANGER);
    const now = jest.spyOn(Date, 'now').mockReturnValue(Date.now() + KEY_CACHE_MS + 1);
    try {
      expect(await status({ authorization: `Bearer ${STRANGER}` })).toBe(401);
    } finally {
      now.mockRestore();
      revoked.delete(STRANGER);
    }
  });

  it.each([
    ['POST', '/v1/tenants'],
    ['POST', `/v1/tenants/${newId()}/keys`],
    ['DELETE', `/v1/tenants/keys/${newId()}`],
  ])('of a member may not %s %s', async (method, path) => {
    const body = method === 'POST' ? { body: '{"name":"t"}' } : {};
    const refused = await http(method, path, body);
    expect(refused.status).toBe(403);
    expect(refused.body.error).toMatchObject({ kind: 'Forbidden', code: 'admin_only' });
    expect(asked.filter((a) => a.command !== 'authenticate')).toEqual([]);
  });

  it('that an admin issues is shown once, and only its digest goes on', async () => {
    const { status: code, body } = await http('POST', `/v1/tenants/${tenantId}/keys`, { key: ADMIN, body: '{}' });
    expect(code).toBe(201);
    const key = body['key'] as string;
    expect(key).toMatch(/^hb_[\w-]{43}$/);
    const issue = asked.find((a) => a.command === 'issue-api-key')!;
    expect(issue.tenantId).toBe(SYSTEM_TENANT_ID);
    expect(issue.body).toEqual({
      tenantId,
      role: 'member',
      label: '',
      keyDigest: createHash('sha256').update(key).digest('hex'),
    });
  });
});

describe('the event feed', () => {
  interface Seen {
    id: string;
    event: string;
    data: { position: string; type: string; streamId: string };
  }

  /** An open feed and what it has shown so far. */
  class OpenFeed {
    readonly seen: Seen[] = [];
    ended = false;
    private readonly leaving = new AbortController();
    status = 0;
    retryAfter: string | null = null;

    async open(query = '', options: { key?: string; lastEventId?: string } = {}): Promise<this> {
      const response = await fetch(`${gateway.url}/v1/events${query}`, {
        headers: {
          authorization: `Bearer ${options.key ?? MEMBER}`,
          ...(options.lastEventId === undefined ? {} : { 'last-event-id': options.lastEventId }),
        },
        signal: this.leaving.signal,
      });
      this.status = response.status;
      this.retryAfter = response.headers.get('retry-after');
      if (response.status === 200) {
        expect(response.headers.get('content-type')).toBe('text/event-stream');
        void this.read(response.body!);
      } else {
        await response.body?.cancel();
      }
      return this;
    }

    leave(): void {
      this.leaving.abort();
    }

    private async read(body: ReadableStream<Uint8Array>): Promise<void> {
      let text = '';
      try {
        for await (const part of body.pipeThrough(new TextDecoderStream())) {
          const blocks = (text + part).split('\n\n');
          text = blocks.pop()!;
          for (const block of blocks.filter((b) => !b.startsWith(':'))) {
            const field = (name: string) => new RegExp(`^${name}: (.*)$`, 'm').exec(block)![1]!;
            this.seen.push({ id: field('id'), event: field('event'), data: JSON.parse(field('data')) as Seen['data'] });
          }
        }
      } catch {
        // Left, or cut off.
      }
      this.ended = true;
    }
  }

  const feeds: OpenFeed[] = [];
  const aFeed = async (...args: Parameters<OpenFeed['open']>): Promise<OpenFeed> => {
    const feed = new OpenFeed();
    feeds.push(feed);
    return feed.open(...args);
  };
  afterEach(() => {
    for (const feed of feeds.splice(0)) feed.leave();
  });

  const append = async (owner: string, count = 1): Promise<string[]> => {
    const result = await db.store.append(aStreamOfRecords(owner, newId(), count));
    if (result.outcome !== 'appended') throw new Error('expected an append');
    return Array.from({ length: count }, (_, i) => (result.firstPosition + BigInt(i)).toString());
  };
  const ids = (feed: OpenFeed) => feed.seen.map((s) => s.id);

  it("shows what its tenant's log gains from now on, in order, and nothing of another tenant", async () => {
    await append(tenantId);
    const [feed, other] = [await aFeed(), await aFeed('', { key: STRANGER })];
    const mine = await append(tenantId, 2);
    const theirs = await append(strangerId, 2);
    const later = await append(tenantId, 1);
    await until('both feeds show it', () => feed.seen.length === 3 && other.seen.length === 2);
    expect(ids(feed)).toEqual([...mine, ...later]);
    expect(ids(other)).toEqual(theirs);
    expect(feed.seen[0]).toMatchObject({
      event: 'RecordReceived',
      data: { position: mine[0], type: 'RecordReceived' },
    });
  });

  it('goes on after Last-Event-ID, which counts before ?after=', async () => {
    const positions = await append(tenantId, 5);
    const [byHeader, byQuery] = [
      await aFeed(`?after=${positions[3]}`, { lastEventId: positions[1]! }),
      await aFeed(`?after=${positions[2]}`),
    ];
    await until('both have gone on', () => byHeader.seen.length === 3 && byQuery.seen.length === 2);
    expect(ids(byHeader)).toEqual(positions.slice(2));
    expect(ids(byQuery)).toEqual(positions.slice(3));
  });

  it('shows the wanted types only, given in one list or in several', async () => {
    const experimentId = newId();
    const { position } = await db.store.head();
    const stream = streamId('experiment', experimentId);
    await append(tenantId);
    await db.store.append({
      writes: [
        { streamId: stream, expected: 'any', events: [newEvent('ExperimentStarted', tenantId, { experimentId })] },
      ],
    });
    await append(tenantId);
    const one = await aFeed(`?after=${position}&types=ExperimentStarted`);
    const both = await aFeed(`?after=${position}&types=ExperimentStarted&types=RecordReceived`);
    await until('both', () => one.seen.length === 1 && both.seen.length === 3);
    expect(one.seen[0]!.event).toBe('ExperimentStarted');
  });

  it.each([
    ['?after=x', 'after'],
    ['?after=-1', 'after'],
    ['?after=1&after=2', 'after'],
    ['?types=Nonsense', 'types'],
    ['?types=', 'types'],
  ])('refuses %s, naming it', async (query, path) => {
    const { status, body } = await http('GET', `/v1/events${query}`);
    expect(status).toBe(400);
    expect(body.error).toMatchObject({ kind: 'InvalidInput', fields: [{ path }] });
  });

  it('has so many places for a tenant, takes none of another, and frees one as soon as it is left', async () => {
    const opened: OpenFeed[] = [];
    let inside: OpenFeed[] = [];
    // The feeds of the tests before may still hold their places for a moment.
    await until('every place is taken', async () => {
      opened.push(...(await Promise.all(Array.from({ length: MAX_FEEDS_PER_TENANT + 8 }, () => aFeed()))));
      inside = opened.filter((feed) => feed.status === 200);
      return inside.length >= MAX_FEEDS_PER_TENANT;
    });
    expect(inside).toHaveLength(MAX_FEEDS_PER_TENANT);
    const refused = opened.filter((feed) => feed.status !== 200);
    expect(refused.map((feed) => [feed.status, feed.retryAfter])).toEqual(refused.map(() => [429, '5']));
    expect((await aFeed('', { key: STRANGER })).status).toBe(200);
    inside[0]!.leave();
    await until('a place is free', async () => (await aFeed()).status === 200);
  });
});

describe('samples', () => {
  it('are waited for and answered with the version that gave them', async () => {
    const prompts = [{ promptIndex: 0, prompt: 'cat>', completions: [] }];
    let tries = 0;
    readSamples = () => {
      tries += 1;
      if (tries < 3) throw new DomainError('IllegalState', 'not_complete', 'not yet');
      return { prompts };
    };
    const { status, body } = await http('POST', '/v1/adapters/poet@best/sample', { body: '{"prompt":"cat>"}' });
    expect(status).toBe(200);
    expect(tries).toBe(3);
    expect(body).toEqual({
      adapter: { adapterId: SYSTEM_TENANT_ID, version: 3, opIndex: '9', weightsDigest: 'w' },
      requestId: SYSTEM_TENANT_ID,
      prompts,
    });
    expect(asked.find((a) => a.command === 'resolve')?.body).toMatchObject({ adapter: 'poet', ref: 'best' });
    expect(asked.find((a) => a.command === 'request-samples')?.body).toMatchObject({ opIndex: '9', prompts: ['cat>'] });
    expect(asked.find((a) => a.command === 'read-samples')?.body).toMatchObject({ requestVersion: '1' });
  });

  it('come from the plain base where no adapter is named', async () => {
    readSamples = () => ({ prompts: [] });
    const { body } = await http('POST', '/v1/base/sample', { body: '{"prompts":["a","b"]}' });
    expect(body['adapter']).toBeNull();
    expect(asked.find((a) => a.command === 'request-samples')?.body).toMatchObject({ adapterId: null, opIndex: null });
  });

  it('take stop strings along', async () => {
    readSamples = () => ({ prompts: [] });
    await http('POST', '/v1/base/sample', { body: '{"prompt":"a","stopStrings":["\\n\\n","User:"]}' });
    expect(asked.find((a) => a.command === 'request-samples')?.body).toMatchObject({
      sampling: { stopStrings: ['\n\n', 'User:'] },
    });
  });

  it.each([
    '{}',
    '{"prompt":"a","stopStrings":[""]}',
    '{"prompt":"a","prompts":["b"]}',
    '{"prompt":""}',
    '{"prompt":"a","samplesPerPrompt":65}',
    '{"x":1}',
  ])('are refused for the body %s before anything is asked', async (body) => {
    const answer = await http('POST', '/v1/base/sample', { body });
    expect(answer.status).toBe(400);
    expect(answer.body.error!.fields.length).toBeGreaterThan(0);
    expect(asked.filter((a) => a.command === 'request-samples')).toEqual([]);
  });

  it('of a request that failed say why instead of waiting', async () => {
    readSamples = () => {
      throw new DomainError('IllegalState', 'samples_failed', 'the base was unloaded');
    };
    const { status, body } = await http('POST', '/v1/base/sample', { body: '{"prompt":"a"}' });
    expect(status).toBe(422);
    expect(body.error!.code).toBe('samples_failed');
  });
});

describe('PEFT files', () => {
  const get = (file: string, key = MEMBER) =>
    fetch(`${gateway.url}/v1/adapters/${file}`, { headers: { authorization: `Bearer ${key}` } });

  it('come with size, type and digest', async () => {
    for (const [file, blob, content] of [
      ['adapter_model.safetensors', files.weightsFile, 'weights'],
      ['adapter_config.json', files.configFile, '{"r":4}'],
    ] as const) {
      const response = await get(`poet@latest/peft/${file}`);
      expect(response.status).toBe(200);
      expect(response.headers.get('content-type')).toContain(blob.mediaType);
      expect(response.headers.get('content-length')).toBe(String(blob.size));
      expect(response.headers.get('etag')).toBe(`"${blob.digest}"`);
      expect(response.headers.get('x-content-sha256')).toBe(blob.digest);
      expect(await response.text()).toBe(content);
    }
  });

  it("do not exist under another name, of an unknown adapter, or in another tenant's store", async () => {
    for (const response of [
      await get('poet/peft/other.bin'),
      await get('poet/peft/..%2f..%2fetc%2fpasswd'),
      await get('nobody/peft/adapter_config.json'),
      await get('poet/peft/adapter_config.json', STRANGER),
    ]) {
      expect(response.status).toBe(404);
      expect(await response.json()).toMatchObject({ error: { kind: 'NotFound' } });
    }
  });
});

describe('for operators', () => {
  it('health, readiness and metrics need no key', async () => {
    const counter = new Counter({ name: 'test_counted', help: 'h', registers: [metrics] });
    counter.inc(3);
    expect((await http('GET', '/healthz', { key: null })).status).toBe(200);
    const ready = await http('GET', '/readyz', { key: null });
    expect([ready.status, ready.body['ok']]).toEqual([200, true]);
    expect(ready.body['checks']).toHaveProperty('gateway broker', 'ok');
    const printed = await fetch(`${gateway.url}/metrics`);
    expect(printed.headers.get('content-type')).toContain('text/plain');
    expect(await printed.text()).toContain('test_counted 3');
  });

  it('an unready part makes the process unready and says why', async () => {
    const heal = health.readiness('a part', () => {
      throw new Error('out of order');
    });
    const { status, body } = await http('GET', '/readyz', { key: null });
    heal();
    expect(status).toBe(503);
    expect(body['checks']).toMatchObject({ 'a part': 'out of order' });
    expect((await http('GET', '/healthz', { key: null })).status).toBe(200);
  });
});

describe('stopping', () => {
  it('of an app behind the door makes its routes unavailable, and no others', async () => {
    await answering.pop()!.stop();
    const { status, headers, body } = await http('GET', '/v1/experiments');
    expect(status).toBe(503);
    expect(headers.get('retry-after')).toBe('1');
    expect(body.error).toMatchObject({ kind: 'Unavailable', code: 'rpc_no_responders' });
    expect((await http('GET', '/v1/streams')).status).toBe(200);
  });

  it('of the door ends the open feeds, frees the port, and takes no more requests', async () => {
    const env = startEnvironment(db, broker);
    const host = { logger: silentLogger(), metrics: new Registry(), health: new Health() };
    const second = (await createGatewayApp(env, host)) as GatewayApp;
    await second.start();
    const feed = await fetch(`${second.url}/v1/events`, { headers: { authorization: `Bearer ${MEMBER}` } });
    expect(feed.status).toBe(200);
    const end = feed.text().then(
      (text) => text,
      () => 'cut off',
    );
    await second.stop();
    expect(await end).toEqual(expect.any(String));
    await expect(fetch(`${second.url}/healthz`)).rejects.toThrow();
  });
});
