import { createHash } from 'node:crypto';

/** SHA-256 hex over log-probs as little-endian fp32, in datum, branch, position order. */
export function outputDigest(logprobs: readonly (readonly Float32Array[])[]): string {
  const hash = createHash('sha256');
  for (const datum of logprobs) {
    for (const branch of datum) hash.update(Buffer.from(branch.buffer, branch.byteOffset, branch.byteLength));
  }
  return hash.digest('hex');
}
