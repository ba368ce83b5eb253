import { createHash } from 'node:crypto';
import type { LogRow } from './log-row';

export function sha256(...parts: Uint8Array[]): Buffer {
  const hash = createHash('sha256');
  for (const part of parts) hash.update(part);
  return hash.digest();
}

const LABEL = Uint8Array.from([...'hotbed.event.1'].map((c) => c.charCodeAt(0)).concat(0));

/**
 * SHA-256('hotbed.event.1\0' || u64 position || u64 stream version || i64 recorded ms || previous hash ||
 * SHA-256(header) || SHA-256(payload)), integers big-endian. Written from the rule, not from the writer.
 */
export function hashOf(
  row: Pick<LogRow, 'streamVersion' | 'recordedAtMs' | 'headerBytes' | 'payloadBytes'>,
  position: bigint,
  previous: Uint8Array,
): Buffer {
  const numbers = new DataView(new ArrayBuffer(24));
  numbers.setBigUint64(0, position, false);
  numbers.setBigUint64(8, row.streamVersion, false);
  numbers.setBigInt64(16, row.recordedAtMs, false);
  return sha256(LABEL, new Uint8Array(numbers.buffer), previous, sha256(row.headerBytes), sha256(row.payloadBytes));
}

export function sameBytes(a: Uint8Array, b: Uint8Array): boolean {
  return a.length === b.length && a.every((byte, i) => byte === b[i]);
}

export function hex(bytes: Uint8Array): string {
  return Buffer.from(bytes).toString('hex');
}
