import { resolve } from 'node:path';
import { Registry } from 'prom-client';
import {
  float32Tensor,
  int32Tensor,
  newId,
  rolloutId,
  streamId,
  toInt32Array,
  type AnyNewEvent,
  type PayloadOf,
  type RewardPayload,
} from '#hotbed/contracts';
import { newEvent, withTestDatabase } from '#hotbed/event-store/testing';
import { Broker, EventStreamWriter } from '#hotbed/messaging';
import { until, withTestBroker } from '#hotbed/messaging/testing';
import { openModelFolder } from '#hotbed/models';
import { Health, silentLogger } from '#hotbed/runtime';
import { Judge } from './judging/judge';
import { createRewarderApp } from './rewarder.app';
import { PastEvents } from './rollouts/past-events';
import { rewardRollouts } from './rollouts/reward-rollouts';

jest.setTimeout(60_000);

const SEEDLING = resolve(__dirname, '../../../models/seedling');
const DIGEST = 'd'.repeat(64);
const tenantId = newId();
const db = withTestDatabase();
const judge = new Judge(null);

const event = <T extends Parameters<typeof newEvent>[0]>(type: T, payload: PayloadOf<T>): AnyNewEvent =>
  newEvent(type, tenantId, payload);

/** One record, a request for two completions of its prompt, and the completions `texts`. @returns the rollouts stream */
async function completedRollouts(reward: RewardPayload | null, texts: string[], answer: string | null = 'tac') {
  const { tokenizer } = await openModelFolder(SEEDLING);
  const [dataStreamId, recordId, requestId, key] = [newId(), newId(), newId(), newId()];
  await db.store.append({
    writes: [
      {
        streamId: streamId('data-stream', dataStreamId),
        expected: 'none',
        events: [
          event('DataStreamCreated', { dataStreamId, name: 'words' }),
          event('RecordReceived', {
            recordId,
            dataStreamId,
            identity: { kind: 'key', key: 'k' },
            content: { prompt: 'cat>', answer, subjectIds: [], metadata: {} },
          }),
        ],
      },
    ],
  });
  const stream = streamId('rollouts', key);
  const about = { requestId, experimentId: null, adapterId: null, opIndex: null };
  await db.store.append({
    writes: [
      {
        streamId: stream,
        expected: 'none',
        events: [
          event('RolloutsRequested', {
            ...about,
            purpose: 'training',
            runOrdinal: 0,
            step: 0,
            baseDigest: DIGEST,
            numericsId: 'f32-1',
            prompts: [
              {
                promptIndex: 0,
                record: { recordId, dataStreamId, streamVersion: '2' },
                subjectIds: [],
                tokens: int32Tensor(tokenizer.encode('cat>')),
                seeds: texts.map((_, i) => String(i)),
              },
            ],
            sampling: { temperature: 1, topK: 0, topP: 1, maxTokens: 8, stopTokenIds: [2] },
            reward,
          }),
          event('RolloutsCompleted', {
            ...about,
            requestVersion: '1',
            promptIndex: 0,
            // Out of order, as nobody promises one.
            rollouts: texts
              .map((text, sampleIndex) => {
                // Without the BOS that a prompt gets, with the end that a completion has.
                const tokens = int32Tensor([...tokenizer.encode(text).slice(1), 2]);
                const logprobs = float32Tensor(new Float32Array(toInt32Array(tokens).length));
                return {
                  rolloutId: rolloutId(requestId, 0, sampleIndex),
                  sampleIndex,
                  tokens,
                  policyLogprobs: logprobs,
                  samplingLogprobs: logprobs,
                  stopReason: 'stop' as const,
                };
              })
              .reverse(),
          }),
        ],
      },
    ],
  });
  return stream;
}

/** What the lane appended behind the request and the completions. */
async function outcomes(stream: string) {
  return (await db.store.readStream(stream, { after: 2n })).map(({ type, payload }) => ({ type, payload }));
}

async function advance(stream: string, consumer = 'rewarder-rollouts'): Promise<void> {
  const bases = { textOf: () => openModelFolder(SEEDLING) };
  await db.lanes.advance(consumer, stream, 2n, rewardRollouts(new PastEvents(db.store), bases, judge));
}

describe('completed rollouts', () => {
  const exact = { verifier: 'exact_match', config: {} };

  it('get a reward each, by sample index, with who gave it', async () => {
    const stream = await completedRollouts(exact, ['tac', 'cat']);
    await advance(stream);
    expect(await outcomes(stream)).toMatchObject([
      {
        type: 'RewardsAssigned',
        payload: {
          requestVersion: '1',
          completedVersion: '2',
          promptIndex: 0,
          sampledTokens: 8,
          source: { verifier: 'exact_match', configDigest: expect.stringMatching(/^[0-9a-f]{64}$/) as string },
          rewards: [
            { sampleIndex: 0, reward: 1, valid: true },
            { sampleIndex: 1, reward: 0, valid: true },
          ],
        },
      },
    ]);
  });

  it('are rewarded once, however often they are delivered', async () => {
    const stream = await completedRollouts(exact, ['tac', 'cat']);
    await advance(stream);
    await advance(stream);
    expect(await outcomes(stream)).toHaveLength(1);
  });

  it('get the same rewards when judged again', async () => {
    const stream = await completedRollouts(exact, ['tac', 'cat']);
    await advance(stream);
    await advance(stream, 'another-consumer');
    const [first, second] = await outcomes(stream);
    expect(second).toEqual(first);
  });

  it('get the reason where there is no reward', async () => {
    const stream = await completedRollouts(exact, ['tac'], null);
    await advance(stream);
    expect(await outcomes(stream)).toMatchObject([
      { type: 'RewardsFailed', payload: { code: 'no_answer', message: 'the record has no answer' } },
    ]);
  });

  it('get the reason where the verifier is gone', async () => {
    const stream = await completedRollouts({ verifier: 'file', config: { path: '/nowhere.mjs' } }, ['tac']);
    await advance(stream);
    expect(await outcomes(stream)).toMatchObject([{ type: 'RewardsFailed', payload: { code: 'verifier_not_usable' } }]);
  });

  it('are left alone where nobody rewards them', async () => {
    const stream = await completedRollouts(null, ['tac']);
    await advance(stream);
    expect(await outcomes(stream)).toEqual([]);
  });
});

describe('the app', () => {
  const broker = withTestBroker();

  it('rewards what the broker delivers, and stops without leaving anything', async () => {
    const stream = await completedRollouts({ verifier: 'exact_match', config: {} }, ['tac', 'cat']);
    const { tokenizerDigest } = await openModelFolder(SEEDLING);
    await db.store.append({
      writes: [
        {
          streamId: streamId('worker', newId()),
          expected: 'none',
          events: [
            event('BaseModelLoaded', {
              ...{ workerId: newId(), name: 'seedling', baseDigest: DIGEST, numericsId: 'f32-1' },
              ...{ architecture: 'llama', parameterCount: 1, contextLength: 64, tokenizerSize: 56, tokenizerDigest },
              ...{ kernels: 'scalar', threads: 1 },
            }),
          ],
        },
      ],
    });
    await feedRollouts(await broker.as('relay'));
    const { user, password } = broker.users.credentials('rewarder');
    const app = await createRewarderApp(
      {
        HOTBED_DATABASE_URL: db.url,
        HOTBED_BLOB_DIR: db.blobFolder,
        HOTBED_NATS_URL: broker.url,
        HOTBED_NATS_USER: user,
        HOTBED_NATS_PASSWORD: password,
        HOTBED_BASE_MODEL: SEEDLING,
      },
      { logger: silentLogger(), metrics: new Registry(), health: new Health() },
    );
    await app.start();
    await until('rewards', async () => (await outcomes(stream)).length === 1);
    await app.stop();
  });

  async function feedRollouts(relay: Broker): Promise<void> {
    const writer = new EventStreamWriter(relay, 'HOTBED_ROLLOUT');
    await writer.recreate('1');
    const events = await db.store.readAll({ after: 0n, limit: 1000, categories: ['rollouts'] });
    expect(await writer.publish(events, '1', 0n, 0)).toMatchObject({ ok: true });
  }
});
