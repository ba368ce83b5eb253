export { openModelFolder, type ModelFolder } from './model-folder';
export { TextTokenizer } from './text-tokenizer';
