import { readFileSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { DEFAULT_ENGINE_OPTIONS, openEngine } from './open-engine';

const FAMILIES = join(resolve(__dirname, '..', '..', '..'), 'native', 'test', 'fixtures', 'families');

/**
 * Both sides round to fp32 on the way: a logit here is the end of about 2^7 dependent roundings of 2^-24 each, relative
 * to the largest value met, hence 2^-17 of the largest logit.
 */
const TOLERANCE = 2 ** -17;

describe('logits of every supported family equal those of transformers', () => {
  it.each([
    ['qwen2-bias-tied', 'Qwen2ForCausalLM'],
    ['qwen3-bias', 'Qwen3ForCausalLM'],
    ['llama-bias-sharded', 'LlamaForCausalLM'],
    ['llama3-rope', 'LlamaForCausalLM'],
    ['linear-rope', 'LlamaForCausalLM'],
  ])('%s', async (name, architecture) => {
    const modelFolder = join(FAMILIES, name);
    const expected = JSON.parse(readFileSync(join(modelFolder, 'expected.json'), 'utf8')) as {
      tokens: number[];
      logits: number[];
    };
    const engine = await openEngine({ ...DEFAULT_ENGINE_OPTIONS, modelFolder, threads: 2, kvCacheMiB: 16 });
    try {
      expect(engine.info().architecture).toBe(architecture);
      const logits = await engine.logits(null, Int32Array.from(expected.tokens));
      const largest = Math.max(...expected.logits.map(Math.abs));
      const errors = expected.logits.map((value, id) => Math.abs(value - (logits[id] ?? Number.NaN)) / largest);
      expect(logits).toHaveLength(expected.logits.length);
      expect(Math.max(...errors)).toBeLessThan(TOLERANCE);
    } finally {
      await engine.dispose();
    }
  });
});
