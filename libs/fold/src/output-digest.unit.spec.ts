import { createHash } from 'node:crypto';
import { outputDigest } from './output-digest';

describe('the digest of outputs', () => {
  it('is over little-endian fp32 in datum, branch, position order', () => {
    const bytes = Buffer.alloc(16);
    [1, -0, 0.5, -2].forEach((value, i) => bytes.writeFloatLE(value, 4 * i));
    const digest = outputDigest([[Float32Array.of(1, -0), Float32Array.of(0.5)], [Float32Array.of(-2)]]);
    expect(digest).toBe(createHash('sha256').update(bytes).digest('hex'));
  });

  it('sees a view into a larger buffer as its own values alone', () => {
    const view = Float32Array.of(7, 1, 2, 7).subarray(1, 3);
    expect(outputDigest([[view]])).toBe(outputDigest([[Float32Array.of(1, 2)]]));
  });
});
