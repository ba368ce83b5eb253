import { readFile } from 'node:fs/promises';
import { join } from 'node:path';

/** Reads blobs of a folder `<root>/<tenant id>/<first two digits>/<sha256>`; null where one is missing. */
export function blobFolder(root: string): (tenantId: string, digest: string) => Promise<Uint8Array | null> {
  return async (tenantId, digest) => {
    try {
      return await readFile(join(root, tenantId, digest.slice(0, 2), digest));
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code === 'ENOENT') return null;
      throw error;
    }
  };
}
