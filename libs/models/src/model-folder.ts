import { createHash } from 'node:crypto';
import { readFile } from 'node:fs/promises';
import { basename, join, resolve } from 'node:path';
import { DomainError } from '#hotbed/contracts';
import { TextTokenizer } from './text-tokenizer';

/** What text needs of a model in Hugging Face layout; the weights are the engine's business. */
export interface ModelFolder {
  path: string;
  /** The folder's last part, for people. */
  name: string;
  tokenizer: TextTokenizer;
  /** SHA-256 of tokenizer.json. */
  tokenizerDigest: string;
  /** Generation ends after one of these: all of generation_config.json, else of config.json, else the tokenizer's. */
  eosTokenIds: readonly number[];
  bosTokenId: number | null;
  /** Positions that a sequence may have. */
  contextLength: number;
}

type Json = Record<string, unknown>;

/**
 * Opens config.json, tokenizer.json and, where they exist, tokenizer_config.json and generation_config.json.
 * @throws DomainError InvalidInput `model_folder_invalid` naming the file and what is wrong with it
 */
export async function openModelFolder(path: string): Promise<ModelFolder> {
  const folder = resolve(path);
  const { json: config } = await readJson(folder, 'config.json');
  const { json: tokenizerJson, digest: tokenizerDigest } = await readJson(folder, 'tokenizer.json');
  const tokenizerConfig = (await readJsonIfThere(folder, 'tokenizer_config.json'))?.json ?? {};
  const generationConfig = (await readJsonIfThere(folder, 'generation_config.json'))?.json ?? {};

  const tokenizer = openTokenizer(folder, tokenizerJson, tokenizerConfig, bosTokenIdOf(folder, config, generationConfig));
  const eosTokenIds = firstNonEmpty([
    idsOf(folder, 'generation_config.json', generationConfig['eos_token_id']),
    idsOf(folder, 'config.json', config['eos_token_id']),
    tokenIdOf(tokenizer, tokenizerConfig['eos_token']),
  ]);
  const contextLength = config['max_position_embeddings'];
  if (typeof contextLength !== 'number' || !Number.isInteger(contextLength) || contextLength < 1) {
    throw invalid(folder, 'config.json', 'max_position_embeddings: expected a positive whole number');
  }
  return {
    path: folder,
    name: basename(folder),
    tokenizer,
    tokenizerDigest,
    eosTokenIds,
    bosTokenId: tokenizer.bosTokenId,
    contextLength,
  };
}

function openTokenizer(folder: string, json: Json, config: Json, bosTokenId: number | null): TextTokenizer {
  try {
    return TextTokenizer.fromJson(json, config, bosTokenId);
  } catch (error) {
    throw invalid(folder, 'tokenizer.json', `no tokenizer that can be used: ${messageOf(error)}`, error);
  }
}

function bosTokenIdOf(folder: string, config: Json, generationConfig: Json): number | null {
  const ids = firstNonEmpty([
    idsOf(folder, 'config.json', config['bos_token_id']),
    idsOf(folder, 'generation_config.json', generationConfig['bos_token_id']),
  ]);
  return ids[0] ?? null;
}

/** A token id, a list of them, or nothing. */
function idsOf(folder: string, file: string, value: unknown): number[] {
  if (value === undefined || value === null) return [];
  const ids: unknown[] = Array.isArray(value) ? value : [value];
  return ids.map((id) => {
    if (typeof id === 'number' && Number.isInteger(id) && id >= 0) return id;
    throw invalid(folder, file, `expected token ids, got ${JSON.stringify(value)}`);
  });
}

/** tokenizer_config.json names tokens as text or as `{ content }`. */
function tokenIdOf(tokenizer: TextTokenizer, token: unknown): number[] {
  const text = typeof token === 'object' && token !== null && 'content' in token ? token.content : token;
  const id = typeof text === 'string' ? tokenizer.idOf(text) : undefined;
  return id === undefined ? [] : [id];
}

function firstNonEmpty(lists: readonly number[][]): number[] {
  return lists.find((list) => list.length > 0) ?? [];
}

interface JsonFile {
  json: Json;
  /** SHA-256 of the file. */
  digest: string;
}

async function readJson(folder: string, file: string): Promise<JsonFile> {
  const read = await readJsonIfThere(folder, file);
  if (read === null) throw invalid(folder, file, 'file not found; expected a model folder in Hugging Face layout');
  return read;
}

async function readJsonIfThere(folder: string, file: string): Promise<JsonFile | null> {
  let bytes: Buffer;
  try {
    bytes = await readFile(join(folder, file));
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return null;
    throw invalid(folder, file, `cannot be read: ${messageOf(error)}`, error);
  }
  try {
    const json: unknown = JSON.parse(bytes.toString('utf8'));
    if (typeof json === 'object' && json !== null && !Array.isArray(json)) {
      return { json: json as Json, digest: createHash('sha256').update(bytes).digest('hex') };
    }
  } catch (error) {
    throw invalid(folder, file, `is no JSON: ${messageOf(error)}`, error);
  }
  throw invalid(folder, file, 'expected a JSON object');
}

function invalid(folder: string, file: string, message: string, cause?: unknown): DomainError {
  return new DomainError('InvalidInput', 'model_folder_invalid', `${join(folder, file)}: ${message}`, {
    fields: [{ path: file, message }],
    ...(cause === undefined ? {} : { cause }),
  });
}

function messageOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}
