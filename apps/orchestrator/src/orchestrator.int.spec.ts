import { resolve } from 'node:path';
import { Registry } from 'prom-client';
import {
  aliasStreamId,
  newId,
  streamId,
  type CommandInput,
  type ExperimentSummary,
  type ExperimentView,
  type LossPayload,
} from '#hotbed/contracts';
import { withTestDatabase } from '#hotbed/event-store/testing';
import { RpcClient } from '#hotbed/messaging';
import { until, withTestBroker } from '#hotbed/messaging/testing';
import { Health, silentLogger, type HostedApp } from '#hotbed/runtime';
import { createOrchestratorApp } from './orchestrator.app';
import { BrokerFeed } from './testing/broker-feed';
import { ScriptedPlatform } from './testing/scripted-platform';

jest.setTimeout(60_000);

const db = withTestDatabase();
const broker = withTestBroker();

let feed: BrokerFeed;
let client: RpcClient;
let app: HostedApp;
let health: Health;
let platform: ScriptedPlatform;

async function startApp(): Promise<HostedApp> {
  health = new Health();
  const { user, password } = broker.users.credentials('orchestrator');
  const env = {
    HOTBED_DATABASE_URL: db.url,
    HOTBED_BLOB_DIR: db.blobFolder,
    HOTBED_NATS_URL: broker.url,
    HOTBED_NATS_USER: user,
    HOTBED_NATS_PASSWORD: password,
    HOTBED_BASE_MODEL: resolve(__dirname, '../../../models/seedling'),
  };
  const started = await createOrchestratorApp(env, { logger: silentLogger(), metrics: new Registry(), health });
  await started.start();
  return started;
}

beforeAll(async () => {
  feed = await BrokerFeed.open(db.store, await broker.as('relay'));
  client = new RpcClient(await broker.as('gateway'));
  app = await startApp();
  platform = new ScriptedPlatform(db);
  await platform.prepare(10);
}, 60_000);

afterAll(() => app.stop());

const ask = <T>(command: string, body: unknown, tenantId = platform.tenantId) =>
  client.request<T>(tenantId, 'orchestrator', command, body);

const create = (settings: Partial<CommandInput<'orchestrator', 'create-experiment'>>) =>
  ask<ExperimentSummary>('create-experiment', {
    name: 'reverse',
    dataStream: 'words',
    reward: { verifier: 'exact_match', config: {} },
    steps: 3,
    promptsPerStep: 2,
    samplesPerPrompt: 4,
    maxTokens: 8,
    ...settings,
  });

/** Neighbours answer and the broker delivers until the condition holds. */
async function play(experiment: ExperimentSummary, what: string, done: (view: ExperimentView) => boolean) {
  await until(what, async () => {
    await platform.answer(experiment);
    await feed.publishNew();
    return done(await ask<ExperimentView>('get-experiment', { experiment: experiment.experimentId }));
  });
}

describe('an experiment by request/reply and broker', () => {
  it('is created, trains over two processes, and shows its curve and examples', async () => {
    const experiment = await create({ name: 'two-processes', steps: 6 });
    expect(experiment).toMatchObject({ state: 'idle', stepsPerRun: 6, adapterName: 'two-processes' });
    await platform.trigger(experiment.experimentId, 2n, 11n);
    await play(experiment, 'two steps', (view) => view.totalSteps >= 2);
    await app.stop();
    app = await startApp();
    await play(experiment, 'the end of the run', (view) => view.state === 'idle' && view.totalSteps === 6);

    const view = await ask<ExperimentView>('get-experiment', { experiment: 'two-processes' });
    expect(view.steps.map((step) => step.step)).toEqual([0, 1, 2, 3, 4, 5]);
    expect(view.latestVersion).toBe(1);
    expect(view.examples[0]).toMatchObject({
      prompt: expect.stringMatching(/^[a-z]{3}>$/) as string,
      completion: 'ab',
    });
    const run = await platform.eventsOf(streamId('experiment', experiment.experimentId), 'TrainingRunCompleted');
    expect(run).toHaveLength(1);
  });

  it('answers the same create with the same key once', async () => {
    const first = await create({ name: 'idempotent', idempotencyKey: 'k1' });
    expect(await create({ name: 'idempotent', idempotencyKey: 'k1' })).toEqual(first);
    await expect(create({ name: 'idempotent', idempotencyKey: 'k1', rank: 4 })).rejects.toMatchObject({
      code: 'idempotency_conflict',
    });
    const { experiments } = await ask<{ experiments: ExperimentSummary[] }>('list-experiments', {});
    expect(experiments.filter((experiment) => experiment.name === 'idempotent')).toHaveLength(1);
  });

  it.each([
    [{ dataStream: 'nowhere' }, 'dataStream'],
    [{ base: 'another' }, 'base'],
    [{ rank: 0 }, 'rank'],
    [{ rank: 100_000 }, 'rank'],
    [{ targets: ['q', 'nose'] }, 'targets[1]'],
    [{ maxTokens: 64 }, 'maxTokens'],
    [{ loss: { name: 'cross_entropy' } }, 'loss.name'],
    [{ loss: { name: 'given_gradient' } }, 'loss.name'],
    [{ loss: { name: 'cispo', clipLow: 2, clipHigh: 1 } }, 'loss.clipHigh'],
    [{ loss: { name: 'cispo', clipLow: 0 } }, 'loss.clipHigh'],
    [{ loss: { name: 'dro' } }, 'loss.beta'],
    [{ loss: { name: 'dro', beta: 0.1, clipLow: 1 } }, 'loss'],
    [{ reward: { verifier: 'nobody', config: {} } }, 'reward.verifier'],
    [{ reward: { verifier: 'regular_expression', config: { pattern: '(' } } }, 'reward.config.pattern'],
    [{ reward: { verifier: 'file', config: { path: '/nowhere.mjs' } } }, 'reward.verifier'],
  ])('refuses %j, naming %s, and changes nothing', async (settings, field) => {
    const before = await db.store.head();
    await expect(create({ name: 'refused', ...(settings as object) })).rejects.toMatchObject({
      fields: [{ path: field }],
    });
    expect(await db.store.head()).toEqual(before);
  });

  it('takes every loss that learns from advantages, and the head among the targets', async () => {
    const losses: LossPayload[] = [
      { name: 'cispo', clipLow: 0, clipHigh: 4 },
      { name: 'dro', beta: 0.05 },
      { name: 'gspo', clipLow: 0.9, clipHigh: 1.1 },
    ];
    for (const loss of losses) {
      const { experimentId } = await create({ name: `learns-by-${loss.name}`, loss, targets: ['lm_head', 'q'] });
      const view = await ask<ExperimentView>('get-experiment', { experiment: experimentId });
      expect(view.algorithm.loss).toEqual(loss);
      expect(view.adapterSpec.targets).toEqual(['q', 'lm_head']);
    }
  });

  it('refuses a name that is taken', async () => {
    await create({ name: 'taken' });
    await expect(create({ name: 'taken' })).rejects.toMatchObject({ code: 'name_taken' });
  });

  it('shows nothing to another tenant', async () => {
    const { experimentId } = await create({ name: 'private' });
    const stranger = newId();
    await expect(ask('get-experiment', { experiment: experimentId }, stranger)).rejects.toMatchObject({
      code: 'experiment_not_found',
    });
    expect(await ask('list-experiments', {}, stranger)).toEqual({ experiments: [], next: null });
  });
});

describe('sampling outside experiments', () => {
  it('asks the plain base and reads the answers as text', async () => {
    const requested = await ask<{ requestId: string; streamId: string; requestVersion: string }>('request-samples', {
      adapterId: null,
      opIndex: null,
      prompts: ['abc>', 'dog>'],
      samplesPerPrompt: 2,
      seed: '7',
    });
    await expect(ask('read-samples', requestOf(requested))).rejects.toMatchObject({ code: 'not_complete' });
    await platform.answerSamples(requested.streamId);
    const answer = await ask<{ prompts: { prompt: string; completions: { text: string }[] }[] }>(
      'read-samples',
      requestOf(requested),
    );
    expect(answer.prompts.map(({ prompt, completions }) => [prompt, completions.map((c) => c.text)])).toEqual([
      ['abc>', ['ab', 'ab']],
      ['dog>', ['ab', 'ab']],
    ]);
    await expect(ask('read-samples', requestOf(requested), newId())).rejects.toMatchObject({ kind: 'NotFound' });
  });

  it('keeps stop strings in the request and shows text that ends before them', async () => {
    const base = { adapterId: null, opIndex: null, prompts: ['abc>'] };
    const requested = await ask<{ requestId: string; streamId: string; requestVersion: string }>('request-samples', {
      ...base,
      sampling: { stopStrings: ['bx', 'b'] },
    });
    const [event] = (await platform.eventsOf(requested.streamId, 'RolloutsRequested')).slice(-1);
    expect(event?.sampling).toMatchObject({ stopStrings: ['bx', 'b'], temperature: 1 });
    await platform.answerSamples(requested.streamId);
    const answer = await ask<{ prompts: { completions: { text: string; tokens: number[] }[] }[] }>(
      'read-samples',
      requestOf(requested),
    );
    expect(answer.prompts[0]?.completions).toMatchObject([{ text: 'a', tokens: [4, 5, 2] }]);
    const refused: [string[], string][] = [
      [[''], 'sampling.stopStrings[0]'],
      [['x'.repeat(129)], 'sampling.stopStrings[0]'],
      [['a', '\ud800'], 'sampling.stopStrings[1]'],
      [Array.from({ length: 9 }, (_, i) => String(i)), 'sampling.stopStrings'],
    ];
    for (const [stopStrings, path] of refused) {
      await expect(ask('request-samples', { ...base, sampling: { stopStrings } })).rejects.toMatchObject({
        kind: 'InvalidInput',
        fields: [{ path }],
      });
    }
  });

  it('pins the newest operation of an adapter and refuses one that is not accepted yet', async () => {
    const { adapterId } = await create({ name: 'sampled' });
    const request = { adapterId, opIndex: null, prompts: ['abc>'] };
    const { streamId: stream } = await ask<{ streamId: string }>('request-samples', request);
    expect(stream).toBe(`rollouts:${adapterId}`);
    const [requested] = await platform.eventsOf(stream, 'RolloutsRequested');
    expect(requested).toMatchObject({ purpose: 'sample', opIndex: '0', reward: null });
    await expect(ask('request-samples', { ...request, opIndex: '3' })).rejects.toMatchObject({
      fields: [{ path: 'opIndex' }],
    });
    await expect(ask('request-samples', request, newId())).rejects.toMatchObject({ code: 'adapter_not_found' });
  });
});

describe('a sample request for very much', () => {
  const prompts = Array.from({ length: 256 }, () => 'abc>');

  it('gets as many tokens by default as one answer can carry', async () => {
    const request = { adapterId: null, opIndex: null, prompts };
    const { streamId: stream } = await ask<{ streamId: string }>('request-samples', request);
    const requested = (await platform.eventsOf(stream, 'RolloutsRequested')).at(-1);
    expect(requested?.sampling.maxTokens).toBe(49);
  });

  it('is refused where it asks for more', async () => {
    const request = { adapterId: null, opIndex: null, prompts, sampling: { maxTokens: 50 } };
    await expect(ask('request-samples', request)).rejects.toMatchObject({ fields: [{ path: 'prompts' }] });
  });
});

describe('aliases', () => {
  it('move to versions that exist, by name or id, and never `latest`', async () => {
    const [experiment] = (await ask<{ experiments: ExperimentSummary[] }>('list-experiments', {})).experiments;
    const move = { adapter: 'two-processes', alias: 'champion', version: 1 };
    expect(await ask('move-alias', move)).toEqual({ adapterId: experiment?.adapterId, alias: 'champion', version: 1 });
    await expect(ask('move-alias', { ...move, version: 9 })).rejects.toMatchObject({ fields: [{ path: 'version' }] });
    await expect(ask('move-alias', { ...move, alias: 'latest' })).rejects.toMatchObject({
      fields: [{ path: 'alias' }],
    });
    await expect(ask('move-alias', { ...move, alias: '7' })).rejects.toMatchObject({ fields: [{ path: 'alias' }] });
    await expect(ask('move-alias', move, newId())).rejects.toMatchObject({ code: 'adapter_not_found' });
  });
});

describe('events of commands', () => {
  it('name whose key asked, else the orchestrator', async () => {
    const actor = `key:${newId()}`;
    const asKey = <T>(command: string, body: unknown) =>
      client.request<T>(platform.tenantId, 'orchestrator', command, body, { actor });
    const experiment = await asKey<ExperimentSummary>('create-experiment', {
      ...{ name: 'of-a-key', dataStream: 'words', reward: { verifier: 'exact_match', config: {} }, maxTokens: 8 },
    });
    await asKey('pause-experiment', { experiment: 'of-a-key' });
    await ask('resume-experiment', { experiment: experiment.experimentId });
    await asKey('cancel-experiment', { experiment: 'of-a-key' });
    const { streamId: samples } = await asKey<{ streamId: string }>('request-samples', {
      ...{ adapterId: experiment.adapterId, opIndex: null, prompts: ['abc>'] },
    });
    await asKey('move-alias', { adapter: 'two-processes', alias: 'of-a-key', version: 1 });
    const trained = await ask<ExperimentSummary>('get-experiment', { experiment: 'two-processes' });
    const streams = [
      streamId('experiment', experiment.experimentId),
      streamId('adapter', experiment.adapterId),
      samples,
      aliasStreamId(trained.adapterId, 'of-a-key'),
    ];
    const events = (await Promise.all(streams.map((stream) => db.store.readStream(stream)))).flat();
    expect(events.map((event) => [event.type, event.actor])).toEqual([
      ['ExperimentCreated', actor],
      ['ExperimentPaused', actor],
      ['ExperimentResumed', 'app:orchestrator'],
      ['ExperimentCancelled', actor],
      ['AdapterCreated', actor],
      ['RolloutsRequested', actor],
      ['AliasMoved', actor],
    ]);
  });
});

function requestOf({
  requestId,
  streamId,
  requestVersion,
}: Record<'requestId' | 'streamId' | 'requestVersion', string>) {
  return { requestId, streamId, requestVersion };
}
