import { closeSync, mkdtempSync, openSync, readFileSync, rmSync, writeFileSync, writeSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { type RandomModelShape, configOf, safetensorsHeader, tensorsOf } from './random-model';
import { Random } from './random';

/** What the formulas of ceilings.ts need to know of a base. */
export interface BaseShape {
  hidden: number;
  intermediate: number;
  layers: number;
  heads: number;
  keyValueHeads: number;
  headDim: number;
  vocabulary: number;
  /** Bytes of one weight in the panels that a decode step reads: 2 where weights are bf16 numbers, else 4. */
  weightBytes: 2 | 4;
}

/** A base to measure on. `dispose` removes what was made for it. */
export interface SpeedModel {
  name: string;
  folder: string;
  shape: BaseShape;
  contextLength: number;
  dispose(): void;
}

/** SmolLM2-135M's shapes. Speed does not depend on the values of the weights, so random ones will do. */
export const SMOLLM2_135M: RandomModelShape = {
  family: 'llama',
  storage: 'BF16',
  hidden: 576,
  intermediate: 1536,
  layers: 30,
  heads: 9,
  keyValueHeads: 3,
  headDim: 64,
  vocabulary: 49152,
  tiedHead: true,
};

/** The same layers, fewer of them: 70 M parameters, of which a decode step still reads 140 MB, far beyond any cache. */
export const SMOLLM2_70M: RandomModelShape = { ...SMOLLM2_135M, layers: 12 };

/** Small enough that a whole benchmark runs in seconds: keeps the benchmarks alive in tests. */
export const QUICK_SHAPE: RandomModelShape = {
  ...SMOLLM2_135M,
  hidden: 64,
  intermediate: 96,
  layers: 2,
  heads: 4,
  keyValueHeads: 2,
  headDim: 16,
  vocabulary: 512,
};

const RANDOM_CONTEXT = 2048;

/** A Hugging Face folder, or seeded random weights of the given shape in a temporary folder. */
export function speedModel(folder: string | null, shape: RandomModelShape, seed: number): SpeedModel {
  return folder === null ? randomSpeedModel(shape, seed) : givenModel(folder);
}

function randomSpeedModel(shape: RandomModelShape, seed: number): SpeedModel {
  const folder = mkdtempSync(join(tmpdir(), 'hotbed-bench-'));
  writeSpeedModel(folder, shape, seed);
  return {
    name: `random bf16 weights, ${shape.layers} layers of width ${shape.hidden}, vocabulary ${shape.vocabulary}`,
    folder,
    shape: { ...shape, weightBytes: 2 },
    contextLength: RANDOM_CONTEXT,
    dispose: () => rmSync(folder, { recursive: true, force: true }),
  };
}

/** Norms of 1 and matrices that keep a row's size, so that nothing overflows however deep the stack. */
function writeSpeedModel(folder: string, shape: RandomModelShape, seed: number): void {
  writeFileSync(join(folder, 'config.json'), JSON.stringify(configOf(shape, RANDOM_CONTEXT)));
  const tensors = tensorsOf(shape);
  const random = new Random(seed);
  const file = openSync(join(folder, 'model.safetensors'), 'w');
  try {
    writeSync(file, safetensorsHeader(tensors, 'BF16'));
    for (const tensor of tensors) {
      const count = tensor.shape.reduce((product, size) => product * size, 1);
      const width = tensor.shape[1];
      writeSync(file, width === undefined ? ones(count) : uniformBf16(count, 1 / Math.sqrt(width), random));
    }
  } finally {
    closeSync(file);
  }
}

const BF16_ONE = 0x3f80;
const ones = (count: number): Uint8Array => new Uint8Array(new Uint16Array(count).fill(BF16_ONE).buffer);

/** Uniform in -reach .. reach, rounded down to bf16: two values from each word of the generator. */
function uniformBf16(count: number, reach: number, random: Random): Uint8Array {
  const floats = Float32Array.from({ length: 1 << 16 }, (_, i) => reach * ((i + 0.5) / 32768 - 1));
  const bits = new Uint32Array(floats.buffer);
  const table = Uint16Array.from(bits, (word) => word >>> 16);
  const out = new Uint16Array(count);
  for (let i = 0; i < count; i += 2) {
    const word = random.word();
    out[i] = table[word & 0xffff] ?? 0;
    if (i + 1 < count) out[i + 1] = table[word >>> 16] ?? 0;
  }
  return new Uint8Array(out.buffer);
}

function givenModel(folder: string): SpeedModel {
  const config = JSON.parse(readFileSync(join(folder, 'config.json'), 'utf8')) as Record<string, unknown>;
  const number = (name: string, fallback?: number): number => {
    const value = config[name] ?? fallback;
    if (typeof value !== 'number') throw new Error(`${join(folder, 'config.json')}: ${name}: expected a number`);
    return value;
  };
  const heads = number('num_attention_heads');
  const hidden = number('hidden_size');
  return {
    name: folder,
    folder,
    shape: {
      hidden,
      intermediate: number('intermediate_size'),
      layers: number('num_hidden_layers'),
      heads,
      keyValueHeads: number('num_key_value_heads', heads),
      headDim: number('head_dim', hidden / heads),
      vocabulary: number('vocab_size'),
      weightBytes: (config['torch_dtype'] ?? config['dtype']) === 'bfloat16' ? 2 : 4,
    },
    contextLength: number('max_position_embeddings'),
    dispose: () => undefined,
  };
}
