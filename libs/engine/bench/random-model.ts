import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import type { NumericsId } from '../src/engine.types';
import type { Random } from './random';

/** Shape of a tiny random base; what the isolation benchmark varies. */
export interface RandomModelShape {
  family: 'llama' | 'qwen3';
  storage: 'F32' | 'BF16';
  hidden: number;
  intermediate: number;
  layers: number;
  heads: number;
  keyValueHeads: number;
  headDim: number;
  vocabulary: number;
  tiedHead: boolean;
}

export const CONTEXT_LENGTH = 192;

export function randomShape(random: Random): RandomModelShape {
  const keyValueHeads = random.integer(1, 2);
  return {
    family: random.pick(['llama', 'qwen3']),
    storage: random.pick(['F32', 'BF16']),
    hidden: random.pick([32, 40, 48]),
    intermediate: random.pick([56, 72, 96]),
    layers: random.integer(1, 3),
    heads: keyValueHeads * random.integer(1, 3),
    keyValueHeads,
    headDim: random.pick([8, 12, 16]),
    vocabulary: random.integer(60, 600),
    tiedHead: random.chance(0.5),
  };
}

/** bf16-1 takes bases of bf16 numbers only. */
export const shapeFor = (numerics: NumericsId, shape: RandomModelShape): RandomModelShape =>
  numerics === 'bf16-1' ? { ...shape, storage: 'BF16' } : shape;

/** Writes a Hugging Face folder with random weights: config.json and model.safetensors. */
export function writeRandomModel(folder: string, shape: RandomModelShape, random: Random): void {
  writeFileSync(join(folder, 'config.json'), JSON.stringify(configOf(shape, CONTEXT_LENGTH)));
  writeFileSync(join(folder, 'model.safetensors'), safetensors(tensorsOf(shape), shape.storage, random));
}

export function configOf(shape: RandomModelShape, contextLength: number): Record<string, unknown> {
  return {
    architectures: [shape.family === 'llama' ? 'LlamaForCausalLM' : 'Qwen3ForCausalLM'],
    model_type: shape.family,
    hidden_size: shape.hidden,
    intermediate_size: shape.intermediate,
    num_hidden_layers: shape.layers,
    num_attention_heads: shape.heads,
    num_key_value_heads: shape.keyValueHeads,
    head_dim: shape.headDim,
    vocab_size: shape.vocabulary,
    max_position_embeddings: contextLength,
    rms_norm_eps: 1e-5,
    rope_theta: 10000,
    tie_word_embeddings: shape.tiedHead,
    bos_token_id: 1,
    eos_token_id: 2,
  };
}

export interface TensorShape {
  name: string;
  shape: number[];
}

export function tensorsOf(shape: RandomModelShape): TensorShape[] {
  const { hidden, intermediate, headDim } = shape;
  const q = shape.heads * headDim;
  const kv = shape.keyValueHeads * headDim;
  const layer = (index: number): TensorShape[] => {
    const prefix = `model.layers.${index}`;
    const norms = shape.family === 'qwen3' ? ['q_norm', 'k_norm'] : [];
    return [
      { name: `${prefix}.input_layernorm.weight`, shape: [hidden] },
      { name: `${prefix}.post_attention_layernorm.weight`, shape: [hidden] },
      { name: `${prefix}.self_attn.q_proj.weight`, shape: [q, hidden] },
      { name: `${prefix}.self_attn.k_proj.weight`, shape: [kv, hidden] },
      { name: `${prefix}.self_attn.v_proj.weight`, shape: [kv, hidden] },
      { name: `${prefix}.self_attn.o_proj.weight`, shape: [hidden, q] },
      ...norms.map((norm) => ({ name: `${prefix}.self_attn.${norm}.weight`, shape: [headDim] })),
      { name: `${prefix}.mlp.gate_proj.weight`, shape: [intermediate, hidden] },
      { name: `${prefix}.mlp.up_proj.weight`, shape: [intermediate, hidden] },
      { name: `${prefix}.mlp.down_proj.weight`, shape: [hidden, intermediate] },
    ];
  };
  return [
    { name: 'model.embed_tokens.weight', shape: [shape.vocabulary, hidden] },
    ...Array.from({ length: shape.layers }, (_, index) => layer(index)).flat(),
    { name: 'model.norm.weight', shape: [hidden] },
    ...(shape.tiedHead ? [] : [{ name: 'lm_head.weight', shape: [shape.vocabulary, hidden] }]),
  ];
}

function safetensors(tensors: TensorShape[], storage: 'F32' | 'BF16', random: Random): Buffer {
  return Buffer.concat([
    safetensorsHeader(tensors, storage),
    ...tensors.map((tensor) => values(tensor, storage, random)),
  ]);
}

/** The file's beginning; the tensors' bytes follow in order. */
export function safetensorsHeader(tensors: TensorShape[], storage: 'F32' | 'BF16'): Buffer {
  const width = storage === 'F32' ? 4 : 2;
  let at = 0;
  const fields = tensors.map(({ name, shape }) => {
    const begin = at;
    at += shape.reduce((product, size) => product * size, width);
    return [name, { dtype: storage, shape, data_offsets: [begin, at] }];
  });
  const header = Buffer.from(JSON.stringify(Object.fromEntries(fields)));
  const length = Buffer.alloc(8);
  length.writeBigUInt64LE(BigInt(header.length));
  return Buffer.concat([length, header]);
}

/** Norms near one; matrices large enough that attention and logits are far from uniform. */
function values({ shape }: TensorShape, storage: 'F32' | 'BF16', random: Random): Buffer {
  const count = shape.reduce((product, size) => product * size, 1);
  const reach = 3 / Math.sqrt(shape[1] ?? 1);
  const floats = Float32Array.from({ length: count }, () =>
    shape.length === 1 ? random.real(0.5, 1.5) : random.real(-reach, reach),
  );
  if (storage === 'F32') return Buffer.from(floats.buffer);
  // The upper half of a float32 is a bfloat16.
  const halves = new Uint16Array(floats.buffer);
  return Buffer.from(Uint16Array.from({ length: count }, (_, i) => halves[2 * i + 1] ?? 0).buffer);
}
