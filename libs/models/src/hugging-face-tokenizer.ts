import * as library from '@huggingface/tokenizers';

/** What is used of the library's tokenizer. Its own declarations leave out the extensions that Node's resolution needs. */
export interface HuggingFaceTokenizer {
  encode(text: string, options: { add_special_tokens: boolean }): { ids: (number | undefined)[] };
  decode(ids: number[], options: { skip_special_tokens: boolean; clean_up_tokenization_spaces: boolean }): string;
  token_to_id(token: string): number | undefined;
}

/** @throws Error saying what tokenizer.json lacks */
export function createTokenizer(tokenizerJson: object, tokenizerConfig: object): HuggingFaceTokenizer {
  const { Tokenizer } = library as unknown as { Tokenizer: new (json: object, config: object) => HuggingFaceTokenizer };
  return new Tokenizer(tokenizerJson, tokenizerConfig);
}
