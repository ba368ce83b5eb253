/**
 * A real model, SmolLM2-135M-Instruct, against transformers (native/test/fixtures/make_real_model_fixture.py). Wants its
 * folder in HOTBED_TEST_MODEL, and is skipped, saying so, without:
 *
 *     HOTBED_TEST_MODEL=<folder> npx jest --selectProjects int --testPathPatterns real-model
 */
import { existsSync, readFileSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { openModelFolder } from '#hotbed/models';
import type { Datum, Engine, Loss, PolicyHandle, SampleRequest } from './engine.types';
import { DEFAULT_ENGINE_OPTIONS, openEngine } from './open-engine';

const FIXTURE = join(
  resolve(__dirname, '..', '..', '..'),
  'native',
  'test',
  'fixtures',
  'real-model',
  'smollm2-135m-instruct.json',
);
interface Expected {
  prompts: {
    text: string;
    ids: number[];
    greedy: number[];
    logprobs: number[];
    top: { ids: number[]; logprobs: number[] };
  }[];
  texts: { text: string; ids: number[] }[];
  /** Greatest distance of PyTorch's float32 log-probs from its float64 ones. */
  float32: number;
}
const EXPECTED = JSON.parse(readFileSync(FIXTURE, 'utf8')) as Expected;
/** Eight times PyTorch's own distance, for another order of sums; the fixture has 7 decimals. */
const TOLERANCE = 8 * EXPECTED.float32 + 1e-6;

const CROSS_ENTROPY: Loss = { name: 'cross_entropy', clipLow: null, clipHigh: null };
const IMPORTANCE: Loss = { name: 'importance_sampling', clipLow: null, clipHigh: null };
const ADAM = { learningRate: 1e-3, beta1: 0.9, beta2: 0.95, eps: 1e-8, weightDecay: 0, gradClipNorm: 1 };
const MINUTES = 60_000;

const folder = process.env['HOTBED_TEST_MODEL'] ?? '';
const isThere = folder !== '' && existsSync(join(folder, 'config.json'));
if (!isThere) {
  console.info(`real-model: skipped, HOTBED_TEST_MODEL ${folder === '' ? 'is not set' : 'has no config.json'}`);
}

const sampling = (policy: PolicyHandle | null, prompt: number[], rest: Partial<SampleRequest['params']>) => ({
  policy,
  prompt: Int32Array.from(prompt),
  seeds: ['1'],
  params: { temperature: 1, topK: 0, topP: 1, maxTokens: 16, stopTokenIds: [2], ...rest },
  promptLogprobs: false,
});

(isThere ? describe : describe.skip)('SmolLM2-135M-Instruct', () => {
  let engine: Engine;
  beforeAll(async () => {
    engine = await openEngine({ ...DEFAULT_ENGINE_OPTIONS, modelFolder: folder, kvCacheMiB: 512 });
  }, 5 * MINUTES);
  afterAll(() => engine.dispose());

  it('is the model that the fixture is of', () => {
    expect(engine.info()).toMatchObject({
      architecture: 'LlamaForCausalLM',
      layers: 30,
      hiddenSize: 576,
      vocabularySize: 49_152,
      eosTokenIds: [2],
      parameterCount: 134_515_008,
    });
  });

  it('has the token ids of transformers for texts and for rendered chats', async () => {
    const { tokenizer } = await openModelFolder(folder);
    for (const { text, ids } of [...EXPECTED.texts, ...EXPECTED.prompts]) {
      expect([text, [...tokenizer.encode(text)]]).toEqual([text, ids]);
    }
  });

  it(
    'continues greedily as transformers does, with its log-probs',
    async () => {
      for (const { ids, greedy, logprobs, top } of EXPECTED.prompts) {
        const { sequences } = await engine.sample(sampling(null, ids, { temperature: 0 }));
        expect([...sequences[0]!.tokens]).toEqual(greedy);
        const errors = logprobs.map((value, i) => Math.abs(value - sequences[0]!.policyLogprobs[i]!));
        expect(Math.max(...errors)).toBeLessThan(TOLERANCE);
        const logits = await engine.logits(null, Int32Array.from(ids));
        const most = Math.max(...logits);
        const lse = most + Math.log(logits.reduce((sum, logit) => sum + Math.exp(logit - most), 0));
        const topErrors = top.ids.map((id, i) => Math.abs(logits[id]! - lse - top.logprobs[i]!));
        expect(Math.max(...topErrors)).toBeLessThan(TOLERANCE);
      }
    },
    5 * MINUTES,
  );

  it(
    'learns: steps on one answer lower its loss, and the trainer computes what the sampler drew, to the bit',
    async () => {
      const targets = ['q', 'k', 'v', 'o', 'gate', 'up', 'down'] as const;
      const adapter = await engine.createAdapter({ rank: 8, alpha: 16, rslora: false, targets, seed: '1' });
      const [{ ids }] = EXPECTED.prompts as [Expected['prompts'][number]];
      const answer = EXPECTED.texts.find(({ text }) => text === 'Hello world')!.ids;
      const datum: Datum = {
        prompt: Int32Array.from(ids),
        branches: [
          {
            tokens: Int32Array.from([...answer, 2]),
            weights: new Float32Array(answer.length + 1).fill(1),
            logprobs: null,
            advantages: null,
          },
        ],
      };
      const losses = [];
      for (let step = 0; step < 4; step++) {
        losses.push((await engine.forwardBackward(adapter, CROSS_ENTROPY, [datum])).lossSum);
        await engine.optimStep(adapter, ADAM);
      }
      expect(losses).toEqual([...losses].sort((a, b) => b - a));
      expect(losses[3]).toBeLessThan(0.8 * losses[0]!);

      const policy = await engine.pin(adapter);
      const { sequences } = await engine.sample({
        ...sampling(policy, ids, { maxTokens: 64, stopTokenIds: [] }),
        seeds: Array.from({ length: 8 }, (_, i) => String(i)),
      });
      const branches = sequences.map(({ tokens, policyLogprobs }) => ({
        tokens,
        weights: null,
        logprobs: policyLogprobs,
        advantages: new Float32Array(tokens.length).fill(1),
      }));
      const { logprobs } = await engine.forward(adapter, IMPORTANCE, [{ prompt: datum.prompt, branches }]);
      expect(sequences.reduce((sum, { tokens }) => sum + tokens.length, 0)).toBe(512);
      expect(logprobs[0]).toEqual(sequences.map(({ policyLogprobs }) => policyLogprobs));
      console.info(`real-model: losses ${losses.map((loss) => loss.toFixed(3)).join(', ')}`);
    },
    5 * MINUTES,
  );
});
