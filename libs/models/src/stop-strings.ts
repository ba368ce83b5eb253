/** What turns ids into text: a `TextTokenizer`, or in tests anything with its `decode`. */
export interface TokenDecoder {
  decode(ids: readonly number[]): string;
}

/** Written by decoders for bytes that are no text, also for a character that is not complete yet. */
const BROKEN = '\uFFFD';
/** A character has at most four bytes; what is still broken after as many tokens stays so. */
const LONGEST_CHARACTER = 4;

/**
 * Finds out after which token of a completion its text first holds one of some strings. The text grows by whole
 * characters: a token that ends in the middle of one adds nothing, and the token that completes it adds it whole. So
 * the answer is a function of the tokens alone, however they arrive.
 */
export class StopMatcher {
  private count = 0;
  /** Tokens so far that have text. */
  private readonly ids: number[] = [];
  /** Tokens [0, read) have become text; those from `shown` on are decoded again, so that the next ones join on rightly. */
  private shown = 0;
  private read = 0;
  /** The end of the text: as much of it as may be the beginning of a match. */
  private tail = '';
  private readonly longest: number;
  private found: number | null = null;

  /** @param stopStrings not empty, each with at least one character */
  constructor(
    private readonly decoder: TokenDecoder,
    private readonly stopStrings: readonly string[],
  ) {
    this.longest = Math.max(0, ...stopStrings.map((text) => text.length));
  }

  /** Number of tokens up to and including the one that completed a stop string; null = none has. Later tokens change nothing. */
  get length(): number | null {
    return this.found;
  }

  /** Takes the next token. @returns whether a stop string is complete */
  push(token: number): boolean {
    if (this.found !== null) return true;
    this.count++;
    this.ids.push(token);
    const before = this.decoder.decode(this.ids.slice(this.shown, this.read));
    const after = this.decoder.decode(this.ids.slice(this.shown));
    const isOpen = after.endsWith(BROKEN) && this.ids.length - this.read < LONGEST_CHARACTER;
    if (after.length === before.length && this.decoder.decode([token, token]) === '') this.ids.pop();
    if (isOpen || after.length <= before.length) return false;
    this.shown = this.read;
    this.read = this.ids.length;
    const text = this.tail + after.slice(before.length);
    if (this.stopStrings.some((stop) => text.includes(stop))) this.found = this.count;
    this.tail = this.longest > 1 ? text.slice(1 - this.longest) : '';
    return this.found !== null;
  }
}

/** How many of these tokens there are up to and including the one that completes a stop string; null = none does. */
export function stopLength(
  decoder: TokenDecoder,
  tokens: Iterable<number>,
  stopStrings: readonly string[],
): number | null {
  const matcher = new StopMatcher(decoder, stopStrings);
  for (const token of tokens) if (matcher.push(token)) return matcher.length;
  return null;
}

/** A completion's text as people and verifiers see it: cut before the first stop string in it. */
export function completionText(
  decoder: TokenDecoder,
  tokens: Int32Array | readonly number[],
  stopStrings: readonly string[] = [],
): string {
  const text = decoder.decode(Array.from(tokens));
  const cuts = stopStrings.map((stop) => text.indexOf(stop)).filter((at) => at >= 0);
  return cuts.length === 0 ? text : text.slice(0, Math.min(...cuts));
}
