import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { ggufNameOf, writeGguf } from './gguf';
import { benchPeers, peerOptions } from './peers';
import { peersText } from './peers-text';
import { QUICK_SHAPE, speedModel } from './speed-model';

describe('bench:peers --quick', () => {
  it('measures ours and names a peer that cannot be had', async () => {
    const report = await benchPeers(peerOptions(['--quick', '--peers', 'torch-peft', '--python', '/bin/false']));
    expect(report.peers).toEqual({ torchPeft: null, llamaCpp: null });
    expect(report.leftOut).toHaveLength(2);
    expect(report.leftOut[0]).toContain('torch-peft: /bin/false');
    expect(report.leftOut[1]).toBe('llama-cpp: not asked for');
    for (const of of [report.training, report.grpo]) {
      expect(of?.tokensPerS).toBeGreaterThan(0);
      expect(of).toMatchObject({ float32TokensPerS: null, bfloat16TokensPerS: null, ratio: null });
    }
    expect(report.decode.map(({ rows, ratio }) => [rows, ratio])).toEqual([
      [1, null],
      [4, null],
    ]);
    expect(peersText(report)).toContain('could not be had');
  }, 60_000);

  it('refuses a peer that does not exist', async () => {
    await expect(benchPeers(peerOptions(['--quick', '--peers', 'other']))).rejects.toThrow('--peers');
  });
});

describe('the GGUF that llama.cpp reads', () => {
  it('holds the same bf16 numbers, q and k in its rotary order, norms widened', () => {
    const model = speedModel(null, QUICK_SHAPE, 3);
    const folder = mkdtempSync(join(tmpdir(), 'hotbed-gguf-'));
    try {
      const path = join(folder, 'model.gguf');
      writeGguf(model.folder, model.shape, 64, path);
      const file = readFileSync(path);
      expect(file.toString('latin1', 0, 4)).toBe('GGUF');
      const tensors = tensorsOfGguf(file);
      const source = safetensorsOf(model.folder);
      expect([...tensors.keys()].sort()).toEqual([...source.keys()].map(ggufNameOf).sort());
      expect(tensors.get('blk.1.ffn_down.weight')).toEqual(source.get('model.layers.1.mlp.down_proj.weight'));
      const norm = tensors.get('output_norm.weight') ?? Buffer.alloc(0);
      expect(norm).toHaveLength(4 * model.shape.hidden);
      expect(norm.readFloatLE(4)).toBe(1);

      const row = (bytes: Buffer | undefined, index: number) =>
        bytes?.subarray(index * 2 * model.shape.hidden, (index + 1) * 2 * model.shape.hidden);
      const q = tensors.get('blk.0.attn_q.weight');
      const ours = source.get('model.layers.0.self_attn.q_proj.weight');
      const { headDim } = model.shape;
      // Second head: element 3 and its partner half a head further become neighbours.
      expect(row(q, headDim + 6)).toEqual(row(ours, headDim + 3));
      expect(row(q, headDim + 7)).toEqual(row(ours, headDim + 3 + headDim / 2));
    } finally {
      rmSync(folder, { recursive: true });
      model.dispose();
    }
  });
});

/** A small reader of what the writer writes. */
function tensorsOfGguf(file: Buffer): Map<string, Buffer> {
  let at = 8;
  const u32 = () => file.readUInt32LE((at += 4) - 4);
  const u64 = () => Number(file.readBigUInt64LE((at += 8) - 8));
  const text = () => {
    const length = u64();
    return file.toString('utf8', at, (at += length));
  };
  const skip = (type: number): void => {
    if (type === 8) text();
    else if (type === 9) {
      const of = u32();
      for (let count = u64(); count > 0; count--) skip(of);
    } else at += 4;
  };
  const count = u64();
  for (let pairs = u64(); pairs > 0; pairs--) {
    text();
    skip(u32());
  }
  const infos = Array.from({ length: count }, () => {
    const name = text();
    const sizes = Array.from({ length: u32() }, u64);
    const width = u32() === 30 ? 2 : 4;
    return { name, bytes: sizes.reduce((product, size) => product * size, width), offset: u64() };
  });
  const data = Math.ceil(at / 32) * 32;
  return new Map(
    infos.map(({ name, bytes, offset }) => [name, file.subarray(data + offset, data + offset + bytes)] as const),
  );
}

function safetensorsOf(folder: string): Map<string, Buffer> {
  const file = readFileSync(join(folder, 'model.safetensors'));
  const data = 8 + Number(file.readBigUInt64LE());
  const header = JSON.parse(file.toString('utf8', 8, data)) as Record<string, { data_offsets: [number, number] }>;
  return new Map(
    Object.entries(header).map(
      ([
        name,
        {
          data_offsets: [begin, end],
        },
      ]) => [name, file.subarray(data + begin, data + end)],
    ),
  );
}
