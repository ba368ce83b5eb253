import canonicalize from 'canonicalize';
import { InvalidInput } from './errors';

/**
 * RFC 8785 bytes of a JSON value: what is stored is exactly what is hashed. Refuses what PostgreSQL's jsonb or UTF-8
 * cannot keep (U+0000, unpaired surrogates) and what JSON cannot say (NaN, Infinity, undefined in arrays), naming the
 * path. @throws InvalidInput
 */
export function canonicalJson(value: unknown, path = '$'): Buffer {
  assertStorable(value, path);
  const text = canonicalize(value);
  if (text === undefined) throw new InvalidInput([{ path, message: 'expected a JSON value' }]);
  return Buffer.from(text, 'utf8');
}

/** @throws InvalidInput naming the first path whose text or number cannot be stored. */
export function assertStorable(value: unknown, path = '$'): void {
  if (typeof value === 'string') return assertText(value, path);
  if (typeof value === 'number') {
    if (!Number.isFinite(value)) throw new InvalidInput([{ path, message: 'expected a finite number' }]);
    return;
  }
  if (typeof value === 'bigint') throw new InvalidInput([{ path, message: 'expected a decimal string, not a bigint' }]);
  if (Array.isArray(value)) {
    value.forEach((item, i) => assertStorable(item, `${path}[${i}]`));
    return;
  }
  if (value !== null && typeof value === 'object') {
    for (const [key, item] of Object.entries(value)) {
      assertText(key, `${path}.${JSON.stringify(key)}`);
      assertStorable(item, `${path}.${key}`);
    }
  }
}

function assertText(text: string, path: string): void {
  if (text.includes('\u0000')) throw new InvalidInput([{ path, message: 'must not contain U+0000' }]);
  if (!text.isWellFormed()) throw new InvalidInput([{ path, message: 'must not contain an unpaired surrogate' }]);
}
