import fc from 'fast-check';
import { StopMatcher, completionText, stopLength, type TokenDecoder } from './stop-strings';

/** One token per byte: text is what the bytes say, as byte-level tokenizers have it. */
const BYTES: TokenDecoder = { decode: (ids) => Buffer.from(ids).toString('utf8') };
const bytesOf = (text: string): number[] => [...Buffer.from(text)];

/** Tokens are pieces of text; id -1 is a special token, which has none. */
const pieces = (...texts: string[]): TokenDecoder => ({ decode: (ids) => ids.map((id) => texts[id] ?? '').join('') });

/** Leaves out a space at the beginning, as sentencepiece decoders do. */
const trimming = (decoder: TokenDecoder): TokenDecoder => ({ decode: (ids) => decoder.decode(ids).replace(/^ /, '') });

describe('stop strings', () => {
  it('end a completion with the token that completes one, wherever it begins', () => {
    const decoder = pieces('Hel', 'lo\n', '\nUser', ':', ' more');
    expect(stopLength(decoder, [0, 1, 2, 3, 4], ['\n\nUser:'])).toBe(4);
    expect(stopLength(decoder, [0, 1, 2, 3, 4], ['\n\n'])).toBe(3);
    expect(stopLength(decoder, [0, 1, 2, 3, 4], ['lo', 'Hel'])).toBe(1);
    expect(stopLength(decoder, [0, 1, 2, 3, 4], ['lol'])).toBeNull();
    expect(stopLength(decoder, [0, 1], [])).toBeNull();
    expect(completionText(decoder, [0, 1, 2, 3], ['\n\nUser:', 'zzz'])).toBe('Hello');
    expect(completionText(decoder, [0, 1, 2], ['User', 'o\n'])).toBe('Hell');
    expect(completionText(decoder, [0, 1], [])).toBe('Hello\n');
  });

  it('are found across characters of several bytes and only once these are whole', () => {
    const text = bytesOf('gr\u00fc\u00dfe \ud83c\udf31!');
    expect(stopLength(BYTES, text, ['\u00df'])).toBe(bytesOf('gr\u00fc\u00df').length);
    expect(stopLength(BYTES, text, ['\ud83c\udf31'])).toBe(text.length - 1);
    expect(stopLength(BYTES, text, ['e \ud83c\udf31!'])).toBe(text.length);
    expect(completionText(BYTES, text, ['\u00dfe'])).toBe('gr\u00fc');
  });

  it('are found after bytes that are no text at all', () => {
    const broken = [...Array.from({ length: 40 }, () => 0xff), ...bytesOf('stop'), ...bytesOf('more')];
    expect(stopLength(BYTES, broken, ['stop'])).toBe(44);
  });

  it('are not hidden by special tokens in between', () => {
    const decoder = pieces('ab', 'cd');
    expect(stopLength(decoder, [0, 9, 9, 1], ['bc'])).toBe(4);
  });

  it('take tokens as they come: a matcher says at each what the whole says', () => {
    fc.assert(
      fc.property(
        fc.array(fc.integer({ min: 0, max: 5 }), { maxLength: 60 }),
        fc.array(fc.string({ unit: fc.constantFrom('a', 'b', ' ', '\u00e9'), minLength: 1, maxLength: 5 }), { maxLength: 3 }),
        fc.boolean(),
        (tokens, stopStrings, trims) => {
          const plain = pieces('a', 'b', ' a', 'ab\u00e9', ' ', '\u00e9b');
          const decoder = trims ? trimming(plain) : plain;
          const matcher = new StopMatcher(decoder, stopStrings);
          const arrived = tokens.map((token) => matcher.push(token));
          const expected = tokens.findIndex((_, i) =>
            stopStrings.some((stop) => decoder.decode(tokens.slice(0, i + 1)).includes(stop)),
          );
          expect(arrived.indexOf(true)).toBe(expected);
          expect(matcher.length).toBe(expected < 0 ? null : expected + 1);
          expect(stopLength(decoder, tokens, stopStrings)).toBe(matcher.length);
        },
      ),
      { seed: 7, numRuns: 1000 },
    );
  });

  it('decode a few tokens at a time, however long the completion', () => {
    let longest = 0;
    const decoder: TokenDecoder = {
      decode: (ids) => {
        longest = Math.max(longest, ids.length);
        return BYTES.decode(ids);
      },
    };
    const matcher = new StopMatcher(decoder, ['never there']);
    for (const byte of bytesOf('\u00e4 \ud83c\udf31 text '.repeat(500))) matcher.push(byte);
    for (let i = 0; i < 500; i++) matcher.push(0xff);
    expect(longest).toBeLessThanOrEqual(8);
    longest = 0;
    const special = new StopMatcher({ decode: (ids) => ((longest = Math.max(longest, ids.length)), '') }, ['x']);
    for (let i = 0; i < 500; i++) special.push(1);
    expect(longest).toBeLessThanOrEqual(2);
  });
});
