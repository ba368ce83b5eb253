/**
 * Every door answers bad input with a clear error that names the field and what was expected, with the status of its
 * kind, and changes nothing.
 */
import { spawn, type ChildProcess } from 'node:child_process';
import { cpSync, mkdirSync, mkdtempSync, readFileSync, rmSync, truncateSync, writeFileSync } from 'node:fs';
import { createServer, type Server } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { DataStreamView } from '#hotbed/contracts';
import { freePort } from '#hotbed/runtime';
import { findNatsServer } from '../../libs/runtime/src/find-nats-server';
import { aTenant, type Tenant } from '../support/a-tenant';
import { refusalOf } from '../support/door';
import { eventually } from '../support/eventually';
import { ROOT, runHotbed, type CommandResult } from '../support/hotbed-command';
import { RunningPlatform } from '../support/running-platform';
import { RECORDS, aSmallExperiment, untilTrained } from '../support/small-training';

jest.setTimeout(240_000);

const MIB = 1024 * 1024;
let platform: RunningPlatform;
let tenant: Tenant;

beforeAll(async () => {
  platform = await RunningPlatform.start();
  tenant = await aTenant(platform, 'gardeners');
  await tenant.door.made('POST', '/v1/streams', { name: 'words' });
  await tenant.door.made('POST', '/v1/streams/words/records', { records: RECORDS });
  const trigger = { kind: 'count', records: RECORDS.length };
  await tenant.door.made('POST', '/v1/experiments', aSmallExperiment({ name: 'grown', steps: 1, trigger }));
  await untilTrained(tenant.door, 'grown');
  await eventually('the version is known', async () => {
    const { status } = await tenant.door.get('/v1/adapters/grown/resolve?ref=latest');
    return status === 200;
  });
});
afterAll(() => platform?.remove());

/** The log's end: whatever is refused must leave it where it is. */
async function head(): Promise<string> {
  return JSON.stringify((await tenant.door.made('GET', '/v1/audit/head')).head);
}

const experiment = aSmallExperiment({ name: 'weeds' });
const reward = (verifier: string, config: unknown) => ({ ...experiment, reward: { verifier, config } });
const tooLong = 'a'.repeat(200);

describe('a body with a wrong field', () => {
  const wrong: [string, string, unknown, string][] = [
    ['a stream’s name', '/v1/streams', { name: 'No Spaces' }, 'name'],
    ['a stream without name', '/v1/streams', {}, 'name'],
    ['a record without prompt', '/v1/streams/words/records', records({ answer: 'a' }), 'records[1].content.prompt'],
    ['a record with a number', '/v1/streams/words/records', records({ prompt: 7 }), 'records[1].content.prompt'],
    ['an empty prompt', '/v1/streams/words/records', records({ prompt: '' }), 'records[1].content.prompt'],
    [
      'a record’s answer',
      '/v1/streams/words/records',
      records({ prompt: 'a', answer: [] }),
      'records[1].content.answer',
    ],
    ['no records', '/v1/streams/words/records', { records: [] }, 'records'],
    ['rank 0', '/v1/experiments', { ...experiment, rank: 0 }, 'rank'],
    ['rank 100,000', '/v1/experiments', { ...experiment, rank: 100_000 }, 'rank'],
    ['a rank as text', '/v1/experiments', { ...experiment, rank: '8' }, 'rank'],
    ['an unknown module', '/v1/experiments', { ...experiment, targets: ['q', 'z'] }, 'targets[1]'],
    ['no module', '/v1/experiments', { ...experiment, targets: [] }, 'targets'],
    ['a negative learning rate', '/v1/experiments', { ...experiment, learningRate: -1 }, 'learningRate'],
    ['more tokens than the context', '/v1/experiments', { ...experiment, maxTokens: 4096 }, 'maxTokens'],
    ['an unknown trigger', '/v1/experiments', { ...experiment, trigger: { kind: 'moon' } }, 'trigger.kind'],
    ['a base that is not loaded', '/v1/experiments', { ...experiment, base: 'oak' }, 'base'],
    ['an unknown verifier', '/v1/experiments', reward('nose', {}), 'reward.verifier'],
    [
      'a verifier’s setting',
      '/v1/experiments',
      reward('regular_expression', { pattern: '(' }),
      'reward.config.pattern',
    ],
    ['a verifier’s missing setting', '/v1/experiments', reward('regular_expression', {}), 'reward.config.pattern'],
    ['a verifier file', '/v1/experiments', reward('file', { path: '/none.mjs' }), 'reward.verifier'],
    ['an unknown field', '/v1/experiments', { ...experiment, rnak: 8 }, 'body'],
    ['no prompt', '/v1/base/sample', {}, 'prompt'],
    ['a prompt longer than the context', '/v1/base/sample', { prompt: tooLong }, 'prompts[0]'],
    ['a temperature as text', '/v1/adapters/grown@latest/sample', { prompt: 'a', temperature: 'hot' }, 'temperature'],
    ['an empty stop string', '/v1/base/sample', { prompt: 'a', stopStrings: ['b', ''] }, 'stopStrings[1]'],
    ['an alias to no version', '/v1/adapters/grown/aliases/stable', { version: 0 }, 'version'],
  ];

  it.each(wrong)('%s: POST %s is refused with 400', async (_, path, body, field) => {
    const before = await head();
    const refusal = await tenant.door.refusal('POST', path, body);
    expect(refusal).toMatchObject({ status: 400, kind: 'InvalidInput' });
    expect(refusal.fields).toContain(field);
    expect(refusal.message).toContain(field);
    expect(await head()).toBe(before);
  });

  it('takes none of the records of a call in which one is wrong', async () => {
    expect((await tenant.door.get<DataStreamView>('/v1/streams/words')).body.records).toBe(RECORDS.length);
  });
});

/** A good record, then this one. */
function records(content: unknown) {
  return { records: [{ content: { prompt: 'ok>' } }, { content }] };
}

describe('a name that means nothing', () => {
  const unknown: [string, string, unknown, string][] = [
    ['GET', '/v1/streams/none', undefined, 'data_stream_not_found'],
    ['POST', '/v1/streams/none/records', { records: RECORDS }, 'data_stream_not_found'],
    ['POST', '/v1/experiments', { ...experiment, dataStream: 'none' }, 'data_stream_not_found'],
    ['POST', '/v1/experiments/none/trigger', {}, 'experiment_not_found'],
    ['GET', '/v1/adapters/none', undefined, 'adapter_not_found'],
    ['POST', '/v1/adapters/none@latest/sample', { prompt: 'cat>' }, 'adapter_not_found'],
    ['POST', '/v1/adapters/grown@stable/sample', { prompt: 'cat>' }, 'alias_not_found'],
    ['POST', '/v1/adapters/grown@99/sample', { prompt: 'cat>' }, 'version_not_found'],
    ['GET', '/v1/adapters/grown@99/peft/adapter_config.json', undefined, 'version_not_found'],
    ['GET', '/v1/adapters/grown@latest/peft/weights.bin', undefined, 'file_not_found'],
    ['POST', '/v1/adapters/grown/aliases/stable', { version: 99 }, 'version_not_found'],
    ['GET', '/v1/nothing', undefined, 'route_not_found'],
  ];

  it.each(unknown)('%s %s is answered with 404', async (method, path, body, code) => {
    const before = await head();
    expect(await tenant.door.refusal(method, path, body)).toMatchObject({ status: 404, kind: 'NotFound', code });
    expect(await head()).toBe(before);
  });

  it('is a conflict where it is taken', async () => {
    const before = await head();
    const name_taken = { status: 409, kind: 'Conflict', code: 'name_taken' };
    expect(await tenant.door.refusal('POST', '/v1/streams', { name: 'words' })).toMatchObject(name_taken);
    const again = { ...experiment, name: 'grown' };
    expect(await tenant.door.refusal('POST', '/v1/experiments', again)).toMatchObject(name_taken);
    expect(await head()).toBe(before);
  });
});

describe('a page that cannot be', () => {
  it.each([
    ['/v1/streams?limit=-1', 'page.limit'],
    ['/v1/streams?limit=0', 'page.limit'],
    ['/v1/streams?limit=ten', 'page.limit'],
    ['/v1/streams?limit=1.5', 'page.limit'],
    ['/v1/streams/words/records?limit=1001', 'page.limit'],
    ['/v1/streams/words/records?after=-3', 'page.after'],
    ['/v1/experiments?after=nowhere', 'page.after'],
    ['/v1/adapters?limit=-1', 'page.limit'],
    ['/v1/adapters/grown/versions?after=-3', 'page.after'],
    ['/v1/events?after=-1', 'after'],
    ['/v1/events?types=Nonsense', 'types'],
  ])('GET %s is refused with 400', async (path, field) => {
    const refusal = await tenant.door.refusal('GET', path);
    expect(refusal).toMatchObject({ status: 400, kind: 'InvalidInput' });
    expect(refusal.fields).toContain(field);
  });
});

describe('a request that cannot be read', () => {
  it('needs a key, and a known one', async () => {
    for (const key of [null, 'hb_wrong', `${tenant.key}x`]) {
      const answer = await platform.door(key).get('/v1/streams');
      expect(refusalOf(answer)).toMatchObject({ status: 401, kind: 'Unauthenticated' });
      expect(answer.headers.get('www-authenticate')).toBe('Bearer');
    }
    expect(await platform.door(null).refusal('POST', '/v1/streams', { name: 'x' })).toMatchObject({
      status: 401,
      code: 'missing_key',
    });
  });

  it.each([
    ['malformed JSON', '{"name": '],
    ['no JSON', 'name=words'],
    ['no object', '["words"]'],
    ['nothing', ''],
  ])('%s is refused with 400', async (_, body) => {
    const before = await head();
    const refusal = refusalOf(await tenant.door.ask('POST', '/v1/streams', body));
    expect(refusal).toMatchObject({ status: 400, kind: 'InvalidInput' });
    expect(refusal.fields).toEqual(['body']);
    expect(await head()).toBe(before);
  });

  it('a body of a megabyte is refused, naming the body', async () => {
    const before = await head();
    const body = JSON.stringify({ records: [{ content: { prompt: 'a'.repeat(MIB) } }] });
    const refusal = refusalOf(await tenant.door.ask('POST', '/v1/streams/words/records', body));
    expect(refusal.kind).toBe('InvalidInput');
    expect(refusal.fields).toEqual(['body']);
    expect(await head()).toBe(before);
  });

  it('a body that is far too large is refused before it is sent', async () => {
    const { status, text } = await tenant.door.announce('/v1/streams/words/records', 64 * MIB);
    expect({ status, error: (JSON.parse(text) as { error: unknown }).error }).toMatchObject({
      status: 400,
      error: { kind: 'InvalidInput', code: 'body_too_large', fields: [{ path: 'body' }] },
    });
  });

  it('a path that is no text is refused in the same words', async () => {
    expect(await tenant.door.refusal('GET', '/v1/adapters/%E0%A4%A/versions')).toMatchObject({
      status: 400,
      kind: 'InvalidInput',
    });
  });
});

describe('the command line', () => {
  const folder = mkdtempSync(join(tmpdir(), 'hotbed-bad-'));
  const servers: Server[] = [];
  const children: ChildProcess[] = [];
  afterAll(async () => {
    for (const server of servers) server.close();
    for (const child of children) {
      const ended = new Promise((done) => child.once('exit', done));
      child.kill('SIGTERM');
      await ended;
    }
    rmSync(folder, { recursive: true, force: true });
  });

  const up = (variables: Record<string, string>) =>
    runHotbed(['up'], { HOTBED_HTTP_PORT: '0', HOTBED_DATA_DIR: join(folder, 'data'), ...variables });

  function aModelFolder(name: string): string {
    const copy = join(folder, name);
    cpSync(join(ROOT, 'models', 'seedling'), copy, { recursive: true });
    return copy;
  }

  /** The last thing said is one line that says what is wrong; nothing was announced; no stack. */
  function expectOneLine({ code, stdout, stderr }: CommandResult, words: (string | RegExp)[]): void {
    const said = stderr.split('\n').filter((line) => line !== '' && !/^(starting|loading) /.test(line));
    expect({ code, stdout, said }).toEqual({ code: 1, stdout: '', said: [expect.any(String)] });
    for (const word of words) expect(said[0]).toMatch(word);
  }

  it('refuses a model folder that is missing, before it starts anything', async () => {
    const missing = join(folder, 'nowhere');
    expectOneLine(await up({ HOTBED_BASE_MODEL: missing }), ['HOTBED_BASE_MODEL', missing]);
  });

  it('refuses a model of an unsupported architecture', async () => {
    const model = aModelFolder('other');
    const config = JSON.parse(readFileSync(join(model, 'config.json'), 'utf8')) as Record<string, unknown>;
    const other = { ...config, architectures: ['MambaForCausalLM'], model_type: 'mamba' };
    writeFileSync(join(model, 'config.json'), JSON.stringify(other));
    expectOneLine(await up({ HOTBED_BASE_MODEL: model }), [/mamba/i]);
  });

  it('refuses a model whose weights are truncated', async () => {
    const model = aModelFolder('short');
    truncateSync(join(model, 'model.safetensors'), 100_000);
    expectOneLine(await up({ HOTBED_BASE_MODEL: model }), ['model.safetensors']);
  });

  it('refuses a port that is in use', async () => {
    const port = await freePort();
    const server = createServer().listen(port, '127.0.0.1');
    servers.push(server);
    expectOneLine(await up({ HOTBED_HTTP_PORT: String(port) }), [String(port), 'HOTBED_HTTP_PORT']);
  });

  it('refuses a second platform on the same data folder, and leaves the first alone', async () => {
    const second = await platform.hotbed(['up']);
    expectOneLine(second, [platform.dataDir, /already/]);
    expect((await tenant.door.get('/v1/streams/words')).status).toBe(200);
  });

  it('says that the database cannot be reached', async () => {
    const url = `postgres://nobody:secret-password@127.0.0.1:${await freePort()}/hotbed`;
    const result = await up({ HOTBED_DATABASE_URL: url });
    expectOneLine(result, [/database|PostgreSQL/i, 'HOTBED_DATABASE_URL']);
    expect(result.stderr).not.toContain('secret-password');
  });

  it('says that NATS cannot be reached', async () => {
    const port = await freePort();
    expectOneLine(await up({ HOTBED_NATS_URL: `nats://127.0.0.1:${port}` }), ['NATS', String(port)]);
  });

  it('says that a NATS server has no JetStream', async () => {
    const program = await findNatsServer({ toolsDir: join(ROOT, '.hotbed', 'tools'), onProgress: () => undefined });
    const port = await freePort();
    const child = spawn(program.path, ['-a', '127.0.0.1', '-p', String(port)], { stdio: 'ignore' });
    children.push(child);
    await eventually('the server listens', () =>
      fetch(`http://127.0.0.1:${port}`).then(
        () => true,
        (error: Error) => !String((error.cause as NodeJS.ErrnoException | undefined)?.code).includes('ECONNREFUSED'),
      ),
    );
    expectOneLine(await up({ HOTBED_NATS_URL: `nats://127.0.0.1:${port}` }), ['JetStream', '-js']);
  });

  it('names a misspelt variable', async () => {
    const result = await up({ HOTBED_HTTP_PROT: '7700' });
    expect(result).toMatchObject({ code: 1, stdout: '' });
    expect(result.stderr).toContain('HOTBED_HTTP_PROT');
    expect(result.stderr).toContain('HOTBED_HTTP_PORT');
  });

  it('names the line of a file that is no record, and creates no stream', async () => {
    const file = join(folder, 'records.jsonl');
    writeFileSync(file, '{"prompt":"a>"}\n{"prompt":\n');
    expectOneLine(await platform.hotbed(['streams', 'create', 'torn', '--from', file]), [`${file}:2`]);
    expect(await platform.door().refusal('GET', '/v1/streams/torn')).toMatchObject({ status: 404 });
  });

  it('refuses every wrong argument in one line that names it', async () => {
    const create = ['experiments', 'create', 'x', '--stream', 'none'];
    const wrong: [string[], string][] = [
      [create, 'no data stream "none"'],
      [[...create, '--rank', 'many'], '--rank'],
      [[...create, '--trigger', 'count'], '--trigger'],
      [[...create, '--verifier-config', '{'], '--verifier-config'],
      [['sample', 'none@latest', 'cat>'], 'no adapter "none"'],
      [['sample', 'base', 'cat>', '--max-tokens', 'lots'], 'maxTokens'],
      [['adapters', 'download', 'none@latest', '--out', join(folder, 'out')], 'no adapter "none"'],
      [['audit', 'verify', '--expect-head', 'nonsense'], '--expect-head'],
      [['demo', '--tenants', '9'], '--tenants'],
      [['demo', '--steps', '0'], '--steps'],
    ];
    const results = await Promise.all(wrong.map(([args]) => platform.hotbed(args)));
    for (const [i, [, word]] of wrong.entries()) expectOneLine(results[i]!, [word]);
  });

  it('says that no platform is there', async () => {
    const empty = join(folder, 'empty');
    mkdirSync(empty);
    expectOneLine(await runHotbed(['streams', 'list'], { HOTBED_DATA_DIR: empty }), [empty, 'npm start']);
    const gone = { HOTBED_API_URL: `http://127.0.0.1:${await freePort()}`, HOTBED_API_KEY: 'hb_x' };
    expectOneLine(await runHotbed(['streams', 'list'], gone), [/no answer from/]);
  });
});
