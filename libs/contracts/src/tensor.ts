import { z } from 'zod';

/**
 * A tensor in a payload: raw little-endian bytes, because canonical JSON loses -0, NaN and anything past 2^53.
 * `shape` [] is a scalar.
 */
export const tensorSchema = z
  .object({
    dtype: z.enum(['i32', 'f32']),
    shape: z.array(z.number().int().nonnegative()),
    base64: z.base64(),
  })
  .refine(
    (t) => Buffer.byteLength(t.base64, 'base64') === 4 * t.shape.reduce((a, b) => a * b, 1),
    'bytes do not match the shape',
  );
export type Tensor = z.infer<typeof tensorSchema>;

/** `shape` absent: one dimension. */
export function int32Tensor(values: Int32Array | readonly number[], shape?: readonly number[]): Tensor {
  const array = values instanceof Int32Array ? values : Int32Array.from(values);
  return { dtype: 'i32', shape: [...(shape ?? [array.length])], base64: bytesOf(array).toString('base64') };
}

/** `shape` absent: one dimension. */
export function float32Tensor(values: Float32Array | readonly number[], shape?: readonly number[]): Tensor {
  const array = values instanceof Float32Array ? values : Float32Array.from(values);
  return { dtype: 'f32', shape: [...(shape ?? [array.length])], base64: bytesOf(array).toString('base64') };
}

/** @throws TypeError when the tensor is not i32. */
export function toInt32Array(tensor: Tensor): Int32Array {
  if (tensor.dtype !== 'i32') throw new TypeError(`expected an i32 tensor, got ${tensor.dtype}`);
  return new Int32Array(copyOf(tensor));
}

/** @throws TypeError when the tensor is not f32. */
export function toFloat32Array(tensor: Tensor): Float32Array {
  if (tensor.dtype !== 'f32') throw new TypeError(`expected an f32 tensor, got ${tensor.dtype}`);
  return new Float32Array(copyOf(tensor));
}

function bytesOf(array: Int32Array | Float32Array): Buffer {
  return Buffer.from(array.buffer, array.byteOffset, array.byteLength);
}

/** A fresh, aligned buffer: Buffer.from may hand out an odd offset of its pool. */
function copyOf(tensor: Tensor): ArrayBuffer {
  const bytes = Buffer.from(tensor.base64, 'base64');
  const copy = new ArrayBuffer(bytes.length);
  new Uint8Array(copy).set(bytes);
  return copy;
}
