import { closeSync, openSync, readFileSync, readSync, writeSync } from 'node:fs';
import { join } from 'node:path';
import type { BaseShape } from './speed-model';

/**
 * Writes a Llama base with bf16 weights in one safetensors file as GGUF 3, tensor by tensor, so that llama.cpp reads
 * the same numbers: matrices stay bf16, norms become fp32, the rows of q and k are put in llama.cpp's rotary order
 * (pairs side by side). The vocabulary is made up: only its size counts here.
 *
 * Layout: magic, version, counts; key-value pairs; per tensor name, sizes (innermost first), type, offset; data, each
 * tensor aligned to 32 bytes. Source: ggml's docs/gguf.md.
 */
export function writeGguf(modelFolder: string, shape: BaseShape, contextLength: number, path: string): void {
  const source = openSync(join(modelFolder, 'model.safetensors'), 'r');
  const target = openSync(path, 'w');
  try {
    const tensors = readHeader(source).map((tensor) => ({ ...tensor, gguf: ggufNameOf(tensor.name) }));
    let offset = 0;
    const infos = tensors.map((tensor) => {
      const isMatrix = tensor.shape.length === 2;
      const at = offset;
      offset += padded(isMatrix ? tensor.bytes : 2 * tensor.bytes);
      const sizes = [...tensor.shape].reverse().map(u64);
      return [text(tensor.gguf), u32(tensor.shape.length), ...sizes, u32(isMatrix ? TYPE_BF16 : TYPE_F32), u64(at)];
    });
    const pairs = keyValues(modelFolder, shape, contextLength);
    const head = Buffer.concat([
      Buffer.from('GGUF'),
      u32(3),
      u64(tensors.length),
      u64(pairs.length),
      ...pairs,
      ...infos.flat(),
    ]);
    writeSync(target, Buffer.concat([head, Buffer.alloc(padded(head.length) - head.length)]));
    for (const tensor of tensors) {
      const bytes = Buffer.alloc(tensor.bytes);
      readSync(source, bytes, 0, tensor.bytes, tensor.begin);
      const data = tensor.shape.length === 1 ? widened(bytes) : rotaryOrder(tensor.name, bytes, shape);
      writeSync(target, Buffer.concat([data, Buffer.alloc(padded(data.length) - data.length)]));
    }
  } finally {
    closeSync(source);
    closeSync(target);
  }
}

interface StoredTensor {
  name: string;
  shape: number[];
  begin: number;
  bytes: number;
}

function readHeader(file: number): StoredTensor[] {
  const length = Buffer.alloc(8);
  readSync(file, length, 0, 8, 0);
  const size = Number(length.readBigUInt64LE());
  const text = Buffer.alloc(size);
  readSync(file, text, 0, size, 8);
  const header = JSON.parse(text.toString()) as Record<
    string,
    { dtype: string; shape: number[]; data_offsets: [number, number] }
  >;
  return Object.entries(header).flatMap(
    ([
      name,
      {
        dtype,
        shape,
        data_offsets: [begin, end],
      },
    ]) => {
      if (name === '__metadata__') return [];
      if (dtype !== 'BF16') throw new Error(`${name}: expected BF16 for llama.cpp, got ${dtype}`);
      return [{ name, shape, begin: 8 + size + begin, bytes: end - begin }];
    },
  );
}

const LAYER_NAMES: Record<string, string> = {
  'input_layernorm.weight': 'attn_norm.weight',
  'post_attention_layernorm.weight': 'ffn_norm.weight',
  'self_attn.q_proj.weight': 'attn_q.weight',
  'self_attn.k_proj.weight': 'attn_k.weight',
  'self_attn.v_proj.weight': 'attn_v.weight',
  'self_attn.o_proj.weight': 'attn_output.weight',
  'mlp.gate_proj.weight': 'ffn_gate.weight',
  'mlp.up_proj.weight': 'ffn_up.weight',
  'mlp.down_proj.weight': 'ffn_down.weight',
};
const OTHER_NAMES: Record<string, string> = {
  'model.embed_tokens.weight': 'token_embd.weight',
  'model.norm.weight': 'output_norm.weight',
  'lm_head.weight': 'output.weight',
};

export function ggufNameOf(name: string): string {
  const [, layer, rest] = /^model\.layers\.(\d+)\.(.+)$/.exec(name) ?? [];
  const known = rest === undefined ? OTHER_NAMES[name] : LAYER_NAMES[rest];
  if (known === undefined) throw new Error(`${name}: no tensor of a Llama model`);
  return layer === undefined ? known : `blk.${layer}.${known}`;
}

/** Row i of the first half of a head and row i of its second half become neighbours. */
function rotaryOrder(name: string, bytes: Buffer, shape: BaseShape): Buffer {
  if (!name.endsWith('q_proj.weight') && !name.endsWith('k_proj.weight')) return bytes;
  const rowBytes = 2 * shape.hidden;
  const half = shape.headDim / 2;
  const out = Buffer.alloc(bytes.length);
  for (let row = 0; row < bytes.length / rowBytes; row++) {
    const head = Math.floor(row / shape.headDim);
    const within = row % shape.headDim;
    const to = head * shape.headDim + (within < half ? 2 * within : 2 * (within - half) + 1);
    bytes.copy(out, to * rowBytes, row * rowBytes, (row + 1) * rowBytes);
  }
  return out;
}

function widened(bytes: Buffer): Buffer {
  const out = Buffer.alloc(2 * bytes.length);
  for (let i = 0; i < bytes.length; i += 2) out.writeUInt16LE(bytes.readUInt16LE(i), 2 * i + 2);
  return out;
}

function keyValues(modelFolder: string, shape: BaseShape, contextLength: number): Buffer[] {
  const config = JSON.parse(readFileSync(join(modelFolder, 'config.json'), 'utf8')) as Record<string, unknown>;
  const rope = (config['rope_parameters'] ?? config) as Record<string, unknown>;
  const llama = (key: string, value: number) => pair(`llama.${key}`, UINT32, u32(value));
  const ids = Array.from({ length: shape.vocabulary }, (_, id) => id);
  // 0 unknown, 1 and 2 begin and end, 3 .. 258 bytes, then words.
  const word = (id: number) =>
    id < 3 ? (['<unk>', '<s>', '</s>'][id] ?? '') : id < 259 ? byteToken(id - 3) : `w${id}`;
  const typeOf = (id: number) => (id === 0 ? 2 : id < 3 ? 3 : id < 259 ? 6 : 1);
  return [
    pair('general.architecture', STRING, text('llama')),
    pair('general.name', STRING, text('hotbed bench')),
    pair('general.file_type', UINT32, u32(FILE_TYPE_BF16)),
    llama('context_length', contextLength),
    llama('embedding_length', shape.hidden),
    llama('block_count', shape.layers),
    llama('feed_forward_length', shape.intermediate),
    llama('attention.head_count', shape.heads),
    llama('attention.head_count_kv', shape.keyValueHeads),
    llama('attention.key_length', shape.headDim),
    llama('attention.value_length', shape.headDim),
    llama('rope.dimension_count', shape.headDim),
    llama('vocab_size', shape.vocabulary),
    pair('llama.attention.layer_norm_rms_epsilon', FLOAT32, f32(Number(config['rms_norm_eps']))),
    pair('llama.rope.freq_base', FLOAT32, f32(Number(rope['rope_theta'] ?? 10000))),
    pair('tokenizer.ggml.model', STRING, text('llama')),
    pair('tokenizer.ggml.bos_token_id', UINT32, u32(1)),
    pair('tokenizer.ggml.eos_token_id', UINT32, u32(2)),
    pair('tokenizer.ggml.unknown_token_id', UINT32, u32(0)),
    pair(
      'tokenizer.ggml.tokens',
      ARRAY,
      list(
        STRING,
        ids.map((id) => text(word(id))),
      ),
    ),
    pair(
      'tokenizer.ggml.scores',
      ARRAY,
      list(
        FLOAT32,
        ids.map((id) => f32(-id)),
      ),
    ),
    pair(
      'tokenizer.ggml.token_type',
      ARRAY,
      list(
        INT32,
        ids.map((id) => u32(typeOf(id))),
      ),
    ),
  ];
}

const byteToken = (value: number) => `<0x${value.toString(16).toUpperCase().padStart(2, '0')}>`;

const [UINT32, INT32, FLOAT32, STRING, ARRAY] = [4, 5, 6, 8, 9];
const TYPE_F32 = 0;
const TYPE_BF16 = 30;
const FILE_TYPE_BF16 = 32;
const ALIGNMENT = 32;
const padded = (size: number): number => Math.ceil(size / ALIGNMENT) * ALIGNMENT;

function u32(value: number): Buffer {
  const buffer = Buffer.alloc(4);
  buffer.writeUInt32LE(value);
  return buffer;
}
function u64(value: number): Buffer {
  const buffer = Buffer.alloc(8);
  buffer.writeBigUInt64LE(BigInt(value));
  return buffer;
}
function f32(value: number): Buffer {
  const buffer = Buffer.alloc(4);
  buffer.writeFloatLE(value);
  return buffer;
}
function text(value: string): Buffer {
  const bytes = Buffer.from(value);
  return Buffer.concat([u64(bytes.length), bytes]);
}
const pair = (key: string, type: number | undefined, value: Buffer): Buffer =>
  Buffer.concat([text(key), u32(type ?? 0), value]);
const list = (type: number | undefined, items: Buffer[]): Buffer =>
  Buffer.concat([u32(type ?? 0), u64(items.length), ...items]);
