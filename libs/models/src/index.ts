export { openModelFolder, type ModelFolder } from './model-folder';
export { TextTokenizer } from './text-tokenizer';
export { Bases, type LoadedBase } from './loaded-bases';
