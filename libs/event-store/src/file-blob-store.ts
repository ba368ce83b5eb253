import { createHash, randomUUID } from 'node:crypto';
import { createReadStream } from 'node:fs';
import { mkdir, open, readFile, readdir, rename, rm, stat } from 'node:fs/promises';
import { dirname, join, resolve } from 'node:path';
import {
  DomainError,
  InvalidInput,
  NotFound,
  Unavailable,
  digestSchema,
  idSchema,
  type BlobRef,
  type BlobStore,
} from '#hotbed/contracts';

export interface FileBlobStoreOptions {
  /** Folder of all tenants; made when missing. */
  root: string;
  /** Bytes that one tenant may keep; absent = no limit. */
  quotaBytesPerTenant?: number;
}

/**
 * Content-addressed files: `<root>/<tenant id>/<first two digits>/<sha256>`.
 *
 * 1. A blob's path appears by rename, after its bytes and before its folder are on disk: it is complete or absent.
 * 2. Every read checks the digest.
 * 3. A tenant's folder is never looked into for another tenant.
 */
export class FileBlobStore implements BlobStore {
  private readonly knownFolders = new Set<string>();
  private readonly usedBytes = new Map<string, Promise<{ bytes: number }>>();

  private readonly root: string;

  constructor(private readonly options: FileBlobStoreOptions) {
    this.root = resolve(options.root);
  }

  /** @throws TooMany `blob_quota`; Unavailable `blob_store_full` */
  async put(tenantId: string, bytes: Uint8Array, mediaType: string): Promise<BlobRef> {
    const digest = createHash('sha256').update(bytes).digest('hex');
    const path = this.path(tenantId, digest);
    return withDiskErrors(async () => {
      if (!(await this.has(path))) {
        await this.reserve(tenantId, bytes.length);
        const temporary = await this.temporaryPath();
        try {
          await writeDurably(temporary, bytes);
          await this.publish(temporary, path);
        } catch (error) {
          await rm(temporary, { force: true });
          throw error;
        }
      }
      await syncFolder(dirname(path));
      return { digest, size: bytes.length, mediaType };
    });
  }

  /** @throws TooMany `blob_quota`; Unavailable `blob_store_full` */
  async adopt(tenantId: string, source: string, mediaType: string): Promise<BlobRef> {
    return withDiskErrors(async () => {
      const hash = createHash('sha256');
      for await (const chunk of createReadStream(source)) hash.update(chunk as Buffer);
      const digest = hash.digest('hex');
      const { size } = await stat(source);
      const path = this.path(tenantId, digest);
      if (await this.has(path)) {
        await rm(source);
      } else {
        await this.reserve(tenantId, size);
        const file = await open(source, 'r+');
        try {
          await file.sync();
        } finally {
          await file.close();
        }
        await this.publish(source, path);
      }
      await syncFolder(dirname(path));
      return { digest, size, mediaType };
    });
  }

  /** @throws NotFound; IllegalState `blob_corrupt` when the bytes do not match the digest */
  async get(tenantId: string, digest: string): Promise<Buffer> {
    const path = this.path(tenantId, digest);
    const bytes = await withDiskErrors(() => readFile(path)).catch((error: unknown) => {
      throw isMissing(error) ? new NotFound('blob', digest) : error;
    });
    const actual = createHash('sha256').update(bytes).digest('hex');
    if (actual !== digest) {
      throw new DomainError(
        'IllegalState',
        'blob_corrupt',
        `blob ${digest} of tenant ${tenantId} holds other bytes (${actual}); restore it from a backup`,
        { context: { tenantId, digest, actual } },
      );
    }
    return bytes;
  }

  async pathOf(tenantId: string, digest: string): Promise<string> {
    const path = this.path(tenantId, digest);
    if (!(await this.has(path))) throw new NotFound('blob', digest);
    return path;
  }

  async temporaryPath(): Promise<string> {
    const folder = join(this.root, 'tmp');
    await withDiskErrors(() => this.ensureFolder(folder));
    return join(folder, randomUUID());
  }

  /** Ids and digests become parts of a path: nothing else may. */
  private path(tenantId: string, digest: string): string {
    const problems = [
      ...(idSchema.safeParse(tenantId).success ? [] : [{ path: 'tenantId', message: 'expected a UUID' }]),
      ...(digestSchema.safeParse(digest).success
        ? []
        : [{ path: 'digest', message: 'expected 64 lower-case hex digits' }]),
    ];
    if (problems.length > 0) throw new InvalidInput(problems);
    return join(this.root, tenantId.toLowerCase(), digest.slice(0, 2), digest);
  }

  private async has(path: string): Promise<boolean> {
    return stat(path).then(
      () => true,
      (error: unknown) => {
        if (isMissing(error)) return false;
        throw error;
      },
    );
  }

  private async publish(temporary: string, path: string): Promise<void> {
    await this.ensureFolder(dirname(path));
    await rename(temporary, path);
  }

  private async ensureFolder(folder: string): Promise<void> {
    if (this.knownFolders.has(folder)) return;
    const firstMade = await mkdir(folder, { recursive: true, mode: 0o700 });
    for (let made = folder; firstMade !== undefined && made.length >= firstMade.length; made = dirname(made)) {
      await syncFolder(dirname(made));
    }
    this.knownFolders.add(folder);
  }

  /** Counts the tenant's files once, then what this process adds; other processes' additions count after a restart. */
  private async reserve(tenantId: string, size: number): Promise<void> {
    const quota = this.options.quotaBytesPerTenant;
    if (quota === undefined) return;
    const counting = this.usedBytes.get(tenantId) ?? folderBytes(join(this.root, tenantId.toLowerCase()));
    this.usedBytes.set(tenantId, counting);
    const used = await counting;
    if (used.bytes + size > quota) {
      throw new DomainError(
        'TooMany',
        'blob_quota',
        `tenant ${tenantId} keeps ${used.bytes} of ${quota} bytes; ${size} more do not fit: raise the quota or free space`,
        { context: { tenantId, used: used.bytes, quota, size } },
      );
    }
    used.bytes += size;
  }
}

async function folderBytes(folder: string): Promise<{ bytes: number }> {
  const entries = await readdir(folder, { recursive: true, withFileTypes: true }).catch(() => []);
  let bytes = 0;
  for (const entry of entries) if (entry.isFile()) bytes += (await stat(join(entry.parentPath, entry.name))).size;
  return { bytes };
}

async function writeDurably(path: string, bytes: Uint8Array): Promise<void> {
  const file = await open(path, 'wx', 0o600);
  try {
    await file.writeFile(bytes);
    await file.sync();
  } finally {
    await file.close();
  }
}

async function syncFolder(folder: string): Promise<void> {
  const handle = await open(folder, 'r');
  try {
    await handle.sync();
  } finally {
    await handle.close();
  }
}

function isMissing(error: unknown): boolean {
  return (error as NodeJS.ErrnoException).code === 'ENOENT';
}

async function withDiskErrors<T>(work: () => Promise<T>): Promise<T> {
  try {
    return await work();
  } catch (error) {
    const code = (error as NodeJS.ErrnoException).code;
    if (code === 'ENOSPC' || code === 'EDQUOT') {
      throw new Unavailable('blob_store_full', 'the disk of the blob store is full; free some space and try again', {
        cause: error,
        retryAfterMs: 5000,
      });
    }
    throw error;
  }
}
