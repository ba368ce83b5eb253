import { hashOf, hex } from './hash-rule';
import { parseSeenHead } from './log-row';

function aRow(streamVersion: bigint, recordedAtMs: bigint, header: string, payload: string) {
  return {
    streamVersion,
    recordedAtMs,
    headerBytes: Buffer.from(header),
    payloadBytes: Buffer.from(payload),
  };
}

/**
 * The rule is frozen. Expected values by Python:
 * sha256(b'hotbed.event.1\0' + struct.pack('>QQq', position, version, ms) + previous + sha256(header) + sha256(payload))
 */
describe('the hash of an event', () => {
  const first = 'd55432daadbdd14d86fd4d48d20ad7c63b4820df9a9245f60b8dc54589fd4eac';

  it('begins after 32 zero bytes', () => {
    expect(hex(hashOf(aRow(1n, 1_764_547_200_000n, '{"a":1}', '{}'), 1n, new Uint8Array(32)))).toBe(first);
  });

  it('takes 64-bit positions, versions and signed times, and UTF-8', () => {
    const row = aRow(2n ** 64n - 1n, -5n, '{"ä":"🌱"}', '{"x":[1e+21,0]}');
    expect(hex(hashOf(row, 2n ** 53n + 1n, Buffer.from(first, 'hex')))).toBe(
      'e2ff031a368b49dd4d8e9ae268c1961fad0d5870889dcfab0e1f35ce7e0c245c',
    );
  });
});

describe('a head given by a person', () => {
  it('is a position and 64 hex digits', () => {
    expect(parseSeenHead(` 12:${'AB'.repeat(32)}\n`)).toEqual({ position: 12n, hash: 'ab'.repeat(32) });
    for (const text of ['', '12', `12:${'a'.repeat(63)}`, `-1:${'a'.repeat(64)}`, `01:${'a'.repeat(64)}`]) {
      expect(() => parseSeenHead(text)).toThrow(/expected <position>:<64 hex digits>/);
    }
  });
});
