import { resolve } from 'node:path';
import { DEFAULT_ENGINE_OPTIONS, openEngine, type Engine, type SampleRequest } from '#hotbed/engine';
import { completionText, openModelFolder, type TextTokenizer } from '#hotbed/models';
import { sampleUntil } from './sample-until';

const SEEDLING = resolve(__dirname, '../../../../models/seedling');

let engine: Engine;
let tokenizer: TextTokenizer;
beforeAll(async () => {
  engine = await openEngine({ ...DEFAULT_ENGINE_OPTIONS, modelFolder: SEEDLING, threads: 1, kvCacheMiB: 16 });
  tokenizer = (await openModelFolder(SEEDLING)).tokenizer;
});
afterAll(() => engine.dispose());

const aRequest = (seeds: string[]): SampleRequest => ({
  policy: null,
  prompt: tokenizer.encode('abc>'),
  seeds,
  params: { temperature: 1.5, topK: 0, topP: 1, maxTokens: 24, stopTokenIds: [] },
  promptLogprobs: false,
});

const until = (request: SampleRequest, stopStrings: string[]) =>
  sampleUntil(engine, request, stopStrings, tokenizer, new AbortController().signal);

describe('sampling until a stop string', () => {
  it('gives the tokens up to the one that completes it, as without it, and text that ends before it', async () => {
    const request = aRequest(Array.from({ length: 12 }, (_, i) => String(i)));
    const whole = await engine.sample(request);
    const texts = whole.sequences.map((sequence) => tokenizer.decode(sequence.tokens));
    // Two letters in the middle of one of the texts, and one that no text has.
    const stops = [texts[0]!.slice(5, 7), texts[1]!.slice(9, 10), '~~~'];
    const result = await until(request, stops);
    let stopped = 0;
    for (const [i, sequence] of result.sequences.entries()) {
      const { tokens, policyLogprobs, samplingLogprobs, stopReason } = whole.sequences[i]!;
      const { length } = sequence.tokens;
      expect(sequence.tokens).toEqual(tokens.slice(0, length));
      expect(sequence.policyLogprobs).toEqual(policyLogprobs.slice(0, length));
      expect(sequence.samplingLogprobs).toEqual(samplingLogprobs.slice(0, length));
      const at = Math.min(...stops.map((stop) => texts[i]!.indexOf(stop)).filter((found) => found >= 0));
      expect(completionText(tokenizer, sequence.tokens, stops)).toBe(
        at === Infinity ? texts[i] : texts[i]!.slice(0, at),
      );
      const before = tokenizer.decode(tokens.slice(0, length - 1));
      expect(stops.some((stop) => before.includes(stop))).toBe(false);
      expect(sequence.stopReason).toBe(at === Infinity ? stopReason : 'stop');
      if (at === Infinity) expect(length).toBe(tokens.length);
      else stopped++;
    }
    expect(stopped).toBeGreaterThanOrEqual(2);
    expect(stopped).toBeLessThan(12);
  });

  it('shows nothing of how far the engine was when it was told to stop', async () => {
    const request = aRequest(['1', '2', '3', '4', '5', '6']);
    const whole = await engine.sample(request);
    const stops = [tokenizer.decode(whole.sequences[2]!.tokens).slice(2, 3)];
    const expected = await until(request, stops);
    for (const maxStepRows of [1, 4, 256]) {
      const options = { ...DEFAULT_ENGINE_OPTIONS, modelFolder: SEEDLING, threads: 1, kvCacheMiB: 16, maxStepRows };
      const other = await openEngine(options);
      const { signal } = new AbortController();
      expect(await sampleUntil(other, request, stops, tokenizer, signal)).toEqual(expected);
      await other.dispose();
    }
  });
});
