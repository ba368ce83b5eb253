import { resolve } from 'node:path';
import { z } from 'zod';
import { dataFolderOf } from './data-folder';

/** For every app that reads or writes large payloads. */
export const blobConfigShape = {
  HOTBED_DATA_DIR: z.string().optional(),
  HOTBED_BLOB_DIR: z.string().optional(),
};

interface BlobValues {
  HOTBED_DATA_DIR?: string | undefined;
  HOTBED_BLOB_DIR?: string | undefined;
}

/** Where blobs are: HOTBED_BLOB_DIR, else `blobs` below the data folder. A path alone: whoever writes creates it. */
export function toBlobFolder(values: BlobValues): string {
  return values.HOTBED_BLOB_DIR === undefined
    ? dataFolderOf(values.HOTBED_DATA_DIR).blobs
    : resolve(values.HOTBED_BLOB_DIR);
}

/** For apps that turn text into tokens and back, and ask verifiers. */
export const textConfigShape = {
  HOTBED_BASE_MODEL: z.string().min(1),
  HOTBED_VERIFIER_DIR: z.string().optional(),
};

interface TextValues {
  HOTBED_BASE_MODEL: string;
  HOTBED_VERIFIER_DIR?: string | undefined;
}

export interface TextConfig {
  /** Folder of the base that the workers load: its tokenizer encodes prompts and decodes completions. */
  modelFolder: string;
  /** Own verifiers by name; null = none. */
  verifierFolder: string | null;
}

export function toTextConfig(values: TextValues): TextConfig {
  return {
    modelFolder: resolve(values.HOTBED_BASE_MODEL),
    verifierFolder: values.HOTBED_VERIFIER_DIR === undefined ? null : resolve(values.HOTBED_VERIFIER_DIR),
  };
}
