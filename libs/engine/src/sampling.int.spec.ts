/**
 * Sampling through the addon: streamed tokens, early ends, the likeliest tokens, the prefix cache. What runs beside a
 * call, what the cache has of it and who listens change nothing of its result.
 */
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { type RandomModelShape, writeRandomModel } from '../bench/random-model';
import { Random } from '../bench/random';
import { EngineFault } from './engine.errors';
import type {
  AdamParams,
  AdapterHandle,
  Engine,
  Loss,
  PolicyHandle,
  SampledToken,
  SampleRequest,
  SampleResult,
} from './engine.types';
import { DEFAULT_ENGINE_OPTIONS, openEngine } from './open-engine';

const SHAPE: RandomModelShape = {
  family: 'llama',
  storage: 'F32',
  hidden: 48,
  intermediate: 72,
  layers: 2,
  heads: 4,
  keyValueHeads: 2,
  headDim: 12,
  vocabulary: 90,
  tiedHead: true,
};
const TOKENIZER_SIZE = 83;
const CROSS_ENTROPY: Loss = { name: 'cross_entropy', clipLow: null, clipHigh: null };
const ADAM: AdamParams = { learningRate: 0.05, beta1: 0.9, beta2: 0.95, eps: 1e-8, weightDecay: 0, gradClipNorm: 0 };

const open = (rest: object = {}): Promise<Engine> =>
  openEngine({ ...DEFAULT_ENGINE_OPTIONS, modelFolder, threads: 2, kvCacheMiB: 16, ...rest });

let modelFolder: string;
let engine: Engine;
beforeAll(async () => {
  modelFolder = mkdtempSync(join(tmpdir(), 'hotbed-sampling-'));
  writeRandomModel(modelFolder, SHAPE, new Random(6));
  const vocab = Object.fromEntries(Array.from({ length: TOKENIZER_SIZE }, (_, id) => [`t${id}`, id]));
  writeFileSync(join(modelFolder, 'tokenizer.json'), JSON.stringify({ model: { type: 'BPE', vocab, merges: [] } }));
  engine = await open();
});
afterAll(async () => {
  await engine.dispose();
  rmSync(modelFolder, { recursive: true });
});

const tokens = (seed: number, count: number): Int32Array =>
  Int32Array.from({ length: count }, (_, i) => 3 + ((seed * 7919 + i * 104_729 + ((seed * i) % 13)) % 77));

const aRequest = (overrides: Partial<SampleRequest> = {}): SampleRequest => ({
  policy: null,
  prompt: tokens(1, 20),
  seeds: ['1', '2', '3'],
  params: { temperature: 1, topK: 0, topP: 1, maxTokens: 24, stopTokenIds: [] },
  promptLogprobs: false,
  ...overrides,
});

async function aTrainedPolicy(
  on: Engine,
  seed: number,
  steps = 1,
): Promise<{ adapter: AdapterHandle; policy: PolicyHandle }> {
  const adapter = await on.createAdapter({
    rank: 4,
    alpha: 8,
    rslora: false,
    targets: ['q', 'v', 'down'],
    seed: String(seed),
  });
  for (let step = 0; step < steps; step++) await train(on, adapter, seed + step);
  return { adapter, policy: await on.pin(adapter) };
}

async function train(on: Engine, adapter: AdapterHandle, seed: number): Promise<void> {
  const completion = tokens(seed, 6);
  const branch = { tokens: completion, weights: new Float32Array(6).fill(1), logprobs: null, advantages: null };
  await on.forwardBackward(adapter, CROSS_ENTROPY, [{ prompt: tokens(seed + 50, 3), branches: [branch] }]);
  await on.optimStep(adapter, ADAM);
}

const bitsOf = (values: Float32Array): number[] => [...new Uint32Array(values.slice().buffer)];

/** What a listener heard, put together as a result's sequences are. */
function heardAs(news: readonly SampledToken[], sequence: number) {
  const own = news.filter((token) => token.sequence === sequence);
  expect(own.map(({ index }) => index)).toEqual(own.map((_, i) => i));
  return {
    tokens: own.map(({ token }) => token),
    policyLogprobs: bitsOf(Float32Array.from(own, ({ policyLogprob }) => policyLogprob)),
    samplingLogprobs: bitsOf(Float32Array.from(own, ({ samplingLogprob }) => samplingLogprob)),
  };
}

const asHeard = ({ sequences }: SampleResult) =>
  sequences.map((sequence) => ({
    tokens: [...sequence.tokens],
    policyLogprobs: bitsOf(sequence.policyLogprobs),
    samplingLogprobs: bitsOf(sequence.samplingLogprobs),
  }));

describe('a listener', () => {
  it('hears every token in order before the result, which is the one that nobody listened to', async () => {
    const expected = await engine.sample(aRequest());
    const news: SampledToken[] = [];
    let calls = 0;
    let isOver = false;
    const call = engine.sample(aRequest(), {
      onTokens: (batch) => {
        expect(isOver).toBe(false);
        calls++;
        news.push(...batch);
      },
    });
    const result = await call.finally(() => (isOver = true));
    expect(result).toEqual(expected);
    expect([0, 1, 2].map((sequence) => heardAs(news, sequence))).toEqual(asHeard(result));
    // One call a step, which carries all sequences of the call.
    expect(calls).toBe(24);
  });

  it('that throws ends its own call with what it threw, and nobody else', async () => {
    const expected = await engine.sample(aRequest());
    const error = new Error('the listener’s own');
    const failing = engine.sample(aRequest({ seeds: ['4', '5'] }), {
      onTokens: () => {
        throw error;
      },
    });
    const other = engine.sample(aRequest());
    await expect(failing).rejects.toBe(error);
    expect(await other).toEqual(expected);
    expect(engine.stats()).toMatchObject({ activeSequences: 0, kvBytes: 0 });
  });

  it('that is slow keeps nobody waiting in the engine', async () => {
    const expected = await engine.sample(aRequest());
    let heard = 0;
    const slow = engine.sample(aRequest(), {
      onTokens: (batch) => {
        heard += batch.length;
        // The event loop stands still; the engine does not.
        Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 5);
      },
    });
    const other = engine.sample(aRequest());
    expect(await other).toEqual(expected);
    expect(await slow).toEqual(expected);
    expect(heard).toBe(72);
  });

  /** A call that takes long, a row at a time, so that what is said while it runs is heard before it ends. */
  const LONG = aRequest({
    seeds: Array.from({ length: 100 }, (_, i) => String(i)),
    params: { temperature: 1, topK: 0, topP: 1, maxTokens: 150, stopTokenIds: [] },
  });

  it('hears nothing after a cancel, and the pages are free', async () => {
    const slow = await open({ maxStepRows: 1 });
    const controller = new AbortController();
    let heard = 0;
    let afterTheEnd = 0;
    let isOver = false;
    const call = slow.sample(LONG, {
      signal: controller.signal,
      onTokens: (batch) => {
        if (isOver) afterTheEnd++;
        heard += batch.length;
        controller.abort();
      },
    });
    await expect(call.finally(() => (isOver = true))).rejects.toMatchObject({ code: 'cancelled' });
    await slow.sample(aRequest({ seeds: ['1'] }));
    expect(afterTheEnd).toBe(0);
    expect(heard).toBeLessThan(100 * 150);
    expect(slow.stats()).toMatchObject({ activeSequences: 0, kvBytes: 0 });
    await slow.dispose();
  });

  it('can end one sequence early; the others go on', async () => {
    const slow = await open({ maxStepRows: 1 });
    const expected = await engine.sample(LONG);
    const result = await slow.sample(LONG, {
      onTokens: (batch, stop) => {
        if (batch.some(({ sequence, index }) => sequence === 1 && index === 4)) stop(1, 5);
      },
    });
    const [cut, whole] = [result.sequences[1]!, expected.sequences[1]!];
    expect(cut.stopReason).toBe('stop');
    expect(cut.tokens).toEqual(whole.tokens.slice(0, 5));
    expect(cut.policyLogprobs).toEqual(whole.policyLogprobs.slice(0, 5));
    expect(cut.samplingLogprobs).toEqual(whole.samplingLogprobs.slice(0, 5));
    const others = ({ sequences }: SampleResult) => sequences.filter((_, i) => i !== 1);
    expect(others(result)).toEqual(others(expected));
    await slow.dispose();
  });
});

describe('the likeliest tokens', () => {
  it('of prompt and draws are those of the whole logits, highest first', async () => {
    const { policy } = await aTrainedPolicy(engine, 3);
    const request = aRequest({ policy, seeds: ['9'], promptTopK: 4, topLogprobs: 3, promptLogprobs: true });
    const result = await engine.sample(request);
    const [sequence] = result.sequences;
    const text = [...request.prompt, ...sequence!.tokens];
    const topOf = async (length: number, k: number) => {
      const logits = await engine.logits(policy, Int32Array.from(text.slice(0, length)));
      return [...logits.slice(0, engine.info().tokenizerSize).entries()]
        .sort(([a, x], [b, y]) => y - x || a - b)
        .slice(0, k)
        .map(([id]) => id);
    };
    for (const position of [1, 2, 10, 19]) {
      const at = (position - 1) * 4;
      expect([...result.promptTop!.tokens.slice(at, at + 4)]).toEqual(await topOf(position, 4));
      const own = [...result.promptTop!.tokens.slice(at, at + 4)].indexOf(request.prompt[position]!);
      if (own >= 0) expect(result.promptTop!.logprobs[at + own]).toBe(result.promptLogprobs![position]);
    }
    expect(result.promptTop!.tokens).toHaveLength(4 * 19);
    for (const index of [0, 5, 23]) {
      expect([...sequence!.top!.tokens.slice(3 * index, 3 * index + 3)]).toEqual(await topOf(20 + index, 3));
    }
    const greedy = await engine.sample({ ...request, params: { ...request.params, temperature: 0 } });
    const { tokens: drawn, policyLogprobs, top } = greedy.sequences[0]!;
    drawn.forEach((token, i) => {
      expect([token, policyLogprobs[i]]).toEqual([top!.tokens[3 * i], top!.logprobs[3 * i]]);
    });
  });

  it('are refused beyond their number, by name', async () => {
    await expect(engine.sample(aRequest({ promptTopK: 21 }))).rejects.toThrow('promptTopK: expected 0 (off) to 20');
    await expect(engine.sample(aRequest({ topLogprobs: -1 }))).rejects.toBeInstanceOf(EngineFault);
    const { promptTop, sequences } = await engine.sample(aRequest());
    expect([promptTop, sequences[0]!.top]).toEqual([null, null]);
  });
});

describe('vllm#30931, #42125, llama.cpp#26207, sglang#24638: cache blocks shared between adapters, versions or base', () => {
  it('one prompt before and after a version, across adapters and the base: hits only of the very policy', async () => {
    const shared = await open();
    const prompt = tokens(7, 150);
    const logitsAlone = async (seed: number | null, steps: number) => {
      const alone = await open({ threads: 1 });
      const policy = seed === null ? null : (await aTrainedPolicy(alone, seed, steps)).policy;
      const logits = await alone.logits(policy, prompt);
      await alone.dispose();
      return bitsOf(logits);
    };
    const expectFrom = async (policy: PolicyHandle | null, hits: number, expected: number[]) => {
      const before = shared.stats().prefixHitTokens;
      expect(bitsOf(await shared.logits(policy, prompt))).toEqual(expected);
      expect(shared.stats().prefixHitTokens - before).toBe(hits);
    };
    const base = await logitsAlone(null, 0);
    const [a1, a2, b1] = [await logitsAlone(10, 1), await logitsAlone(10, 2), await logitsAlone(20, 1)];
    await expectFrom(null, 0, base);
    const a = await aTrainedPolicy(shared, 10);
    const b = await aTrainedPolicy(shared, 20);
    await expectFrom(a.policy, 0, a1);
    await expectFrom(b.policy, 0, b1);
    await train(shared, a.adapter, 11);
    const second = await shared.pin(a.adapter);
    await expectFrom(second, 0, a2);
    for (const [policy, expected] of [
      [a.policy, a1],
      [second, a2],
      [b.policy, b1],
      [null, base],
    ] as const) {
      await expectFrom(policy, 128, expected);
    }
    await shared.dispose();
  });

  it('crafted token ids reach no other block: every text of a family that shares most ids has its own bits', async () => {
    const base = tokens(8, 129);
    const variants = [0, 1, 63, 64, 65, 127].flatMap((at) =>
      [5, 6].map((id) => Int32Array.from(base, (token, i) => (i === at ? id : token))),
    );
    const moved = Int32Array.from([...base.slice(64, 128), ...base.slice(0, 64), 9]);
    const repeated = Int32Array.from([...base.slice(0, 64), ...base.slice(0, 64), 9]);
    const texts = [base, ...variants, moved, repeated, base.slice(64), base.slice(0, 65)];
    const shared = await open();
    for (const round of [0, 1]) {
      const before = shared.stats().prefixHitTokens;
      for (const text of texts) {
        const alone = await engine.logits(null, text);
        expect(await shared.logits(null, text)).toEqual(alone);
      }
      if (round === 1) expect(shared.stats().prefixHitTokens - before).toBeGreaterThanOrEqual(texts.length * 64);
    }
    await shared.dispose();
  });
});

describe('vllm#5543, #33123, #34046: a cache hit differs from a miss', () => {
  it('calls on shared beginnings, warm and cold, with neighbours: the same bits', async () => {
    const common = tokens(9, 180);
    const requests = Array.from({ length: 12 }, (_, i) =>
      aRequest({
        prompt: Int32Array.from([...common.slice(0, 60 + 10 * i), ...tokens(100 + i, i % 5)]),
        seeds: [String(i), String(i + 40)],
        params: { temperature: 0.8, topK: i % 3 === 0 ? 9 : 0, topP: 0.95, maxTokens: 20, stopTokenIds: [2] },
        promptLogprobs: i % 4 === 0,
      }),
    );
    const cold = await Promise.all(
      requests.map(async (request) => {
        const alone = await open({ threads: 1, kvCacheMiB: 4 });
        return alone.sample(request).finally(() => alone.dispose());
      }),
    );
    const warm = await open();
    for (const round of [0, 1, 2]) {
      const before = warm.stats().prefixHitTokens;
      expect(await Promise.all(requests.map((request) => warm.sample(request)))).toEqual(cold);
      if (round > 0) expect(warm.stats().prefixHitTokens - before).toBeGreaterThan(500);
    }
    await warm.dispose();
  });
});

describe('SkyRL#1647: publishing A resets the prefix cache of B', () => {
  it('B’s hits are unchanged while A publishes 100 versions', async () => {
    const shared = await open();
    const a = await aTrainedPolicy(shared, 30);
    const b = await aTrainedPolicy(shared, 31);
    const ofB = aRequest({ policy: b.policy, prompt: tokens(12, 140), seeds: ['1'] });
    const expected = await shared.sample(ofB);
    for (let version = 0; version < 100; version++) {
      await train(shared, a.adapter, 32);
      const policy = await shared.pin(a.adapter);
      const ofA = shared.sample({ ...ofB, policy });
      const before = shared.stats().prefixHitTokens;
      expect(await shared.sample(ofB)).toEqual(expected);
      await ofA;
      expect(shared.stats().prefixHitTokens - before).toBe(128);
      shared.release(policy);
    }
    expect(shared.stats().prefixEvictions).toBe(0);
    await shared.dispose();
  });
});

describe('pegainfer#613, #688, mlx#1958, pytorch#45422: a row depends on its batch', () => {
  it('prompts of many lengths, prefilled in pieces beside others, draw what they draw alone', async () => {
    const lengths = [1, 2, 7, 31, 63, 64, 65, 100, 127, 128, 129];
    const requests = lengths.map((length, i) => aRequest({ prompt: tokens(200 + i, length), promptLogprobs: true }));
    const alone: SampleResult[] = [];
    for (const request of requests) alone.push(await engine.sample(request));
    for (const maxStepRows of [5, 48, 512]) {
      const crowded = await open({ maxStepRows });
      expect(await Promise.all(requests.map((request) => crowded.sample(request)))).toEqual(alone);
      await crowded.dispose();
    }
  });
});

describe('llama.cpp#6950: the number of slots changes the output', () => {
  it('threads, rows of a step and room for sequences change nothing', async () => {
    const requests = Array.from({ length: 8 }, (_, i) => aRequest({ prompt: tokens(300 + i, 5 + 17 * i) }));
    const expected: SampleResult[] = [];
    for (const request of requests) expected.push(await engine.sample(request));
    for (const rest of [
      { threads: 1, maxStepRows: 1 },
      { threads: 3, maxStepRows: 16, kvCacheMiB: 1 },
      { threads: 2, maxStepRows: 1000 },
    ]) {
      const other = await open(rest);
      expect(await Promise.all(requests.map((request) => other.sample(request)))).toEqual(expected);
      await other.dispose();
    }
  });
});

describe('vllm#56769, #50161: greedy output with an adapter differs between runs', () => {
  it('1,000 runs in mixed company have one output', async () => {
    const { policy } = await aTrainedPolicy(engine, 40);
    const { policy: neighbour } = await aTrainedPolicy(engine, 41);
    const params = { ...aRequest().params, temperature: 0, maxTokens: 6 };
    const greedy = aRequest({ policy, prompt: tokens(13, 70), seeds: ['1'], params });
    const expected = await engine.sample(greedy);
    for (let round = 0; round < 20; round++) {
      const calls = Array.from({ length: 50 }, (_, i) => {
        if (i % 5 === 0)
          void engine.sample(aRequest({ policy: neighbour, prompt: tokens(400 + i + round, 1 + (i % 40)) }));
        return engine.sample({ ...greedy, seeds: [String(i)] });
      });
      for (const result of await Promise.all(calls)) expect(result).toEqual(expected);
    }
  });
});

describe('transformers#35244: a tokenizer smaller than the vocabulary', () => {
  it('ids beyond it are never drawn and never among the likeliest', async () => {
    const { tokenizerSize, vocabularySize } = engine.info();
    expect([tokenizerSize, vocabularySize]).toEqual([TOKENIZER_SIZE, SHAPE.vocabulary]);
    const seeds = Array.from({ length: 40 }, (_, i) => String(i));
    const params = { ...aRequest().params, temperature: 50, maxTokens: 40 };
    const { sequences, promptTop } = await engine.sample(aRequest({ seeds, params, promptTopK: 20, topLogprobs: 20 }));
    const ids = [promptTop!.tokens, ...sequences.flatMap((sequence) => [sequence.tokens, sequence.top!.tokens])];
    expect(Math.max(...ids.map((list) => Math.max(...list)))).toBeLessThan(tokenizerSize);
    expect(Math.max(...sequences.map((sequence) => Math.max(...sequence.tokens)))).toBe(tokenizerSize - 1);
  });
});
