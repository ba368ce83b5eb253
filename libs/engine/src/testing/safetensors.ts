import { readFileSync, writeFileSync } from 'node:fs';

/** One tensor of a safetensors file, bytes as stored. */
export interface StoredTensor {
  dtype: string;
  shape: number[];
  bytes: Buffer;
}

/** Tensors of a file by name. Believes the file: for fixtures, never for input. */
export function readSafetensors(path: string): Map<string, StoredTensor> {
  const file = readFileSync(path);
  const start = 8 + Number(file.readBigUInt64LE(0));
  const header = JSON.parse(file.toString('utf8', 8, start)) as Record<
    string,
    { dtype: string; shape: number[]; data_offsets: [number, number] }
  >;
  delete header['__metadata__'];
  return new Map(
    Object.entries(header).map(
      ([
        name,
        {
          dtype,
          shape,
          data_offsets: [begin, end],
        },
      ]) => [name, { dtype, shape, bytes: file.subarray(start + begin, start + end) }],
    ),
  );
}

export function safetensorsBytes(tensors: ReadonlyMap<string, StoredTensor>): Buffer {
  let at = 0;
  const header = Object.fromEntries(
    [...tensors].map(([name, { dtype, shape, bytes }]) => {
      const data_offsets = [at, (at += bytes.length)];
      return [name, { dtype, shape, data_offsets }];
    }),
  );
  return withHeader(JSON.stringify(header), Buffer.concat([...tensors.values()].map(({ bytes }) => bytes)));
}

export function writeSafetensors(path: string, tensors: ReadonlyMap<string, StoredTensor>): void {
  writeFileSync(path, safetensorsBytes(tensors));
}

/** A file with this header, whatever it says. @param length what the file claims the header's length to be */
export function withHeader(header: string, data: Buffer, length?: bigint): Buffer {
  const text = Buffer.from(header);
  const prefix = Buffer.alloc(8);
  prefix.writeBigUInt64LE(length ?? BigInt(text.length));
  return Buffer.concat([prefix, text, data]);
}

/** F32, BF16 or F16 as float32, each widened exactly. */
export function floatsOf({ dtype, bytes }: StoredTensor): Float32Array {
  if (dtype === 'F32') return new Float32Array(Uint8Array.from(bytes).buffer);
  const halves = new Uint16Array(Uint8Array.from(bytes).buffer);
  if (dtype === 'BF16') return new Float32Array(Uint32Array.from(halves, (bits) => bits << 16).buffer);
  return Float32Array.from(halves, (bits) => {
    const sign = (bits & 0x8000) === 0 ? 1 : -1;
    const exponent = (bits >> 10) & 31;
    const fraction = bits & 1023;
    return sign * (exponent === 0 ? fraction * 2 ** -24 : (1024 + fraction) * 2 ** (exponent - 25));
  });
}

export function float32Tensor(values: Float32Array, shape: number[]): StoredTensor {
  return { dtype: 'F32', shape, bytes: Buffer.from(values.buffer, values.byteOffset, values.byteLength) };
}
