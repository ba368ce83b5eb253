import { InvalidInput } from '#hotbed/contracts';
import { createTokenizer, type HuggingFaceTokenizer } from './hugging-face-tokenizer';

/**
 * Text to token ids and back, as tokenizer.json says. Ids travel through the platform; text is made from them only for
 * people and verifiers, and never turned back into ids that were sampled.
 */
export class TextTokenizer {
  private constructor(
    private readonly tokenizer: HuggingFaceTokenizer,
    readonly bosTokenId: number | null,
  ) {}

  /** @param bosTokenId from the model's configuration; null = none */
  static fromJson(tokenizerJson: object, tokenizerConfig: object, bosTokenId: number | null): TextTokenizer {
    return new TextTokenizer(createTokenizer(tokenizerJson, tokenizerConfig), bosTokenId);
  }

  /**
   * Ids of a prompt, with the special tokens that the tokenizer's post-processor adds. A text that begins with the
   * written-out BOS (a rendered chat template) does not get a second one.
   * @param field name of the text in error messages
   * @throws InvalidInput where the tokenizer has no token for some of the text, or the text gives no token
   */
  encode(text: string, field = 'prompt'): Int32Array {
    const { ids } = this.tokenizer.encode(text, { add_special_tokens: true });
    const hasTwoBos = this.bosTokenId !== null && ids[0] === this.bosTokenId && ids[1] === this.bosTokenId;
    const tokens = hasTwoBos ? ids.slice(1) : ids;
    if (tokens.length === 0) throw new InvalidInput([{ path: field, message: 'gives no token' }]);
    if (!tokens.every((id) => id !== undefined)) {
      throw new InvalidInput([{ path: field, message: 'holds text that the tokenizer of this base has no token for' }]);
    }
    return Int32Array.from(tokens);
  }

  /** Text of ids without special tokens, as written: no spaces are cleaned up. */
  decode(ids: Int32Array | readonly number[]): string {
    if (ids.length === 0) return ''; // the library refuses an empty list
    return this.tokenizer.decode(Array.from(ids), {
      skip_special_tokens: true,
      clean_up_tokenization_spaces: false,
    });
  }

  idOf(token: string): number | undefined {
    return this.tokenizer.token_to_id(token);
  }
}
