import { createHash } from 'node:crypto';
import { createReadStream, type ReadStream } from 'node:fs';
import { Inject, Injectable } from '@nestjs/common';
import { DomainError, NotFound, type BlobStore } from '#hotbed/contracts';
import { COMMANDS_PORT, type Asker, type Commands } from '../http/commands';
import { parseAdapterRef } from './adapter-ref';

/** Injection token. */
export const BLOB_STORE = Symbol('BlobStore');

export const PEFT_FILES = ['adapter_model.safetensors', 'adapter_config.json'] as const;

export interface PeftFile {
  digest: string;
  size: number;
  mediaType: string;
  stream: ReadStream;
}

/** Opens the files of a version in PEFT's layout. */
@Injectable()
export class PeftFileHandler {
  constructor(
    @Inject(COMMANDS_PORT) private readonly commands: Commands,
    @Inject(BLOB_STORE) private readonly blobs: BlobStore,
  ) {}

  async open(asker: Asker, adapterRef: string, file: string): Promise<PeftFile> {
    const { adapter, ref } = parseAdapterRef(adapterRef);
    const { version } = await this.commands.request(asker, 'registry', 'resolve', { adapter, ref });
    const blob = { 'adapter_model.safetensors': version.weightsFile, 'adapter_config.json': version.configFile }[file];
    if (blob === undefined) {
      throw new NotFound('file', file, 'a version has adapter_model.safetensors and adapter_config.json');
    }
    const path = await this.blobs.pathOf(asker.tenantId, blob.digest);
    await assertIntact(path, blob.digest);
    return { ...blob, stream: createReadStream(path) };
  }
}

/** A version never changes (A6): bytes that are not what the log says are refused, not served. */
async function assertIntact(path: string, digest: string): Promise<void> {
  const hash = createHash('sha256');
  for await (const chunk of createReadStream(path)) hash.update(chunk as Buffer);
  if (hash.digest('hex') === digest) return;
  throw new DomainError(
    'IllegalState',
    'file_corrupt',
    `the stored file does not have digest ${digest}; restore it from a backup, or derive it again: hotbed audit rederive`,
    { context: { digest } },
  );
}
