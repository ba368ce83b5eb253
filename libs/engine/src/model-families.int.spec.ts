/**
 * Every supported family against transformers and PEFT (native/test/fixtures/make_family_fixtures.py): logits, log-probs,
 * loss and every gradient of every LoRA tensor.
 *
 * Tolerance: two correct float32 programs differ by the order of their sums. The fixture records how far PyTorch's own
 * float32 run is from the float64 truth, per kind of tensor; ours may be 8 times as far (long ascending chains instead of
 * blocked sums), never less than 1e-6 of the greatest magnitude. A wrong formula misses by orders of magnitude.
 */
import { cpSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import type { AdapterHandle, Datum, Engine, Loss } from './engine.types';
import { DEFAULT_ENGINE_OPTIONS, openEngine } from './open-engine';
import { float32Tensor, floatsOf, readSafetensors, writeSafetensors, type StoredTensor } from './testing/safetensors';

const FAMILIES = join(resolve(__dirname, '..', '..', '..'), 'native', 'test', 'fixtures', 'families');
const CROSS_ENTROPY: Loss = { name: 'cross_entropy', clipLow: null, clipHigh: null };

interface Expected {
  info: { architecture: string; eosTokenIds: number[]; tokenizerSize: number; vocabularySize: number };
  datums: { tokens: number[]; targets: number[]; weights: number[] }[];
  loss: { value: number; float32: number };
  kinds: Record<'logits' | 'logprobs' | 'gradient', { maxAbsError: number; maxAbsValue: number }>;
}

class Fixture {
  readonly folder: string;
  readonly expected: Expected;
  private readonly tensors: Map<string, StoredTensor>;

  constructor(name: string) {
    this.folder = join(FAMILIES, name);
    this.expected = JSON.parse(readFileSync(join(this.folder, 'expected.json'), 'utf8')) as Expected;
    this.tensors = readSafetensors(join(this.folder, 'expected.safetensors'));
  }

  get datums(): Datum[] {
    return this.expected.datums.map(({ tokens, targets, weights }) => ({
      prompt: Int32Array.from(tokens.slice(0, 1)),
      branches: [
        { tokens: Int32Array.from(targets), weights: Float32Array.from(weights), logprobs: null, advantages: null },
      ],
    }));
  }

  /** Names of the adapter's tensors. */
  get adapterTensors(): string[] {
    return [...this.tensors.keys()].flatMap((key) => (key.startsWith('gradient.') ? [key.slice(9)] : []));
  }

  compare(key: string, actual: Float32Array): void {
    const kind = key.startsWith('gradient.') ? 'gradient' : key.endsWith('logits') ? 'logits' : 'logprobs';
    const { maxAbsError, maxAbsValue } = this.expected.kinds[kind];
    const expected = floatsOf(this.tensors.get(key)!);
    expect(actual).toHaveLength(expected.length);
    const worst = Math.max(...expected.map((value, i) => Math.abs(value - actual[i]!)));
    const allowed = Math.max(8 * maxAbsError, 1e-6 * maxAbsValue);
    expect({ key, worst, allowed, near: worst <= allowed }).toMatchObject({ near: true });
  }
}

const open = (modelFolder: string): Promise<Engine> =>
  openEngine({ ...DEFAULT_ENGINE_OPTIONS, modelFolder, threads: 2, kvCacheMiB: 16 });

async function compareAll(fixture: Fixture): Promise<void> {
  const engine = await open(fixture.folder);
  try {
    expect(engine.info()).toMatchObject(fixture.expected.info);
    const { adapter } = await engine.importPeft(join(fixture.folder, 'adapter'), '0');
    await compareForward(engine, adapter, fixture);
    const { lossSum, logprobs } = await engine.forwardBackward(adapter, CROSS_ENTROPY, fixture.datums);
    logprobs.forEach(([branch], i) => fixture.compare(`adapter.${i}.logprobs`, branch!));
    const { value, float32 } = fixture.expected.loss;
    expect(Math.abs(lossSum - value)).toBeLessThanOrEqual(
      Math.max(8 * Math.abs(float32 - value), 2e-6 * Math.abs(value)),
    );
    const gradients = await engine.tensors(adapter, 'gradient');
    expect([...gradients.keys()].sort()).toEqual(fixture.adapterTensors.sort());
    for (const [name, gradient] of gradients) fixture.compare(`gradient.${name}`, gradient);
  } finally {
    await engine.dispose();
  }
}

async function compareForward(engine: Engine, adapter: AdapterHandle, fixture: Fixture): Promise<void> {
  const policy = await engine.pin(adapter);
  const base = await engine.forward(null, CROSS_ENTROPY, fixture.datums);
  for (const [i, { tokens }] of fixture.expected.datums.entries()) {
    fixture.compare(`base.${i}.logits`, await engine.logits(null, Int32Array.from(tokens)));
    fixture.compare(`adapter.${i}.logits`, await engine.logits(policy, Int32Array.from(tokens)));
    fixture.compare(`base.${i}.logprobs`, base.logprobs[i]![0]!);
  }
  engine.release(policy);
}

describe('logits, log-probs, loss and every gradient equal those of transformers and PEFT', () => {
  it.each([
    ['llama2', 'float16, a key/value head per query head, transformers 4'],
    ['llama3-rope', 'float32, llama3 rotary scaling, transformers 5'],
    ['llama3-tied', 'bfloat16, llama3 rotary scaling, tied head, three end tokens, transformers 4'],
    ['linear-rope', 'float32, linear rotary scaling'],
    ['llama-bias-sharded', 'float32, biases everywhere, four files'],
    ['smollm2', 'bfloat16, tied head, heads of hidden size over heads, transformers 4'],
    ['tinyllama', 'float32, eight query heads on one key/value head, transformers 4'],
    ['qwen2-bias-tied', 'float16, biases of q, k and v, tied head, sliding window switched off'],
    ['qwen2.5-padded', 'bfloat16, vocabulary larger than the tokenizer, end tokens of generation_config.json, rsLoRA'],
    ['qwen3-bias', 'float32, QK-norm, decoupled head_dim, biases'],
    ['qwen3-tied', 'bfloat16, QK-norm, decoupled head_dim, tied head'],
  ])('%s: %s', (name) => compareAll(new Fixture(name)));
});

describe('vllm#10798, peft#2733, mlx-vlm#841: rsLoRA is ignored, alpha is not divided by r', () => {
  it.each([
    ['alpha over r', 'llama2'],
    ['alpha over the root of r', 'qwen2.5-padded'],
  ])('%s is the scale, as in PEFT', async (_, name) => {
    await compareAll(new Fixture(name));
    // The comparison would notice: the same tensors under the other rule are other outputs.
    const fixture = new Fixture(name);
    const folder = mkdtempSync(join(tmpdir(), 'hotbed-rslora-'));
    cpSync(join(fixture.folder, 'adapter'), folder, { recursive: true });
    const path = join(folder, 'adapter_config.json');
    const config = JSON.parse(readFileSync(path, 'utf8')) as { use_rslora: boolean };
    writeFileSync(path, JSON.stringify({ ...config, use_rslora: !config.use_rslora }));
    const engine = await open(fixture.folder);
    try {
      const { adapter } = await engine.importPeft(folder, '0');
      await expect(compareForward(engine, adapter, fixture)).rejects.toThrow();
    } finally {
      await engine.dispose();
      rmSync(folder, { recursive: true });
    }
  });
});

describe('how weights are stored', () => {
  it.each(['llama2', 'smollm2', 'qwen2-bias-tied', 'qwen3-tied'])(
    '%s: the same values in float32 give the same bits',
    async (name) => {
      const { folder, datums } = new Fixture(name);
      const wide = mkdtempSync(join(tmpdir(), 'hotbed-wide-'));
      cpSync(folder, wide, { recursive: true });
      const tensors = readSafetensors(join(folder, 'model.safetensors'));
      expect(new Set([...tensors.values()].map(({ dtype }) => dtype)).has('F32')).toBe(false);
      writeSafetensors(
        join(wide, 'model.safetensors'),
        new Map([...tensors].map(([key, tensor]) => [key, float32Tensor(floatsOf(tensor), tensor.shape)])),
      );
      const results = [];
      for (const modelFolder of [folder, wide]) {
        const engine = await open(modelFolder);
        const { adapter } = await engine.importPeft(join(folder, 'adapter'), '0');
        const result = await engine.forwardBackward(adapter, CROSS_ENTROPY, datums);
        results.push({ result, gradient: await engine.tensors(adapter, 'gradient') });
        await engine.dispose();
      }
      rmSync(wide, { recursive: true });
      expect(results[1]).toEqual(results[0]);
    },
  );
});
