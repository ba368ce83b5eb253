export { openModelFolder, type ModelFolder } from './model-folder';
export { StopMatcher, completionText, stopLength, type TokenDecoder } from './stop-strings';
export { TextTokenizer } from './text-tokenizer';
export { baseIdentity, Bases, type LoadedBase } from './loaded-bases';
