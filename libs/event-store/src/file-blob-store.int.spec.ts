import { createHash } from 'node:crypto';
import { existsSync, mkdtempSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { newId } from '#hotbed/contracts';
import { FileBlobStore } from './file-blob-store';

describe('the blob store', () => {
  let root: string;
  beforeEach(() => void (root = mkdtempSync(join(tmpdir(), 'hotbed-blobs-'))));
  afterEach(() => rmSync(root, { recursive: true, force: true }));

  const tenant = newId();
  const bytes = Buffer.from('some bytes');
  const digest = createHash('sha256').update(bytes).digest('hex');

  it('keeps bytes under their digest and gives them back', async () => {
    const blobs = new FileBlobStore({ root });
    expect(await blobs.put(tenant, bytes, 'text/plain')).toEqual({ digest, size: 10, mediaType: 'text/plain' });
    await blobs.put(tenant, bytes, 'text/plain');
    expect(await blobs.get(tenant, digest)).toEqual(bytes);
    expect(await new FileBlobStore({ root }).pathOf(tenant, digest)).toBe(
      join(root, tenant, digest.slice(0, 2), digest),
    );
    expect(readdirSync(join(root, 'tmp'))).toEqual([]);
  });

  it('takes over a complete file', async () => {
    const blobs = new FileBlobStore({ root });
    for (let i = 0; i < 2; i++) {
      const path = await blobs.temporaryPath();
      writeFileSync(path, bytes);
      expect(await blobs.adopt(tenant, path, 'text/plain')).toMatchObject({ digest, size: 10 });
      expect(existsSync(path)).toBe(false);
    }
    expect(await blobs.get(tenant, digest)).toEqual(bytes);
  });

  it('takes parallel writes of one content', async () => {
    const blobs = new FileBlobStore({ root });
    const refs = await Promise.all(Array.from({ length: 10 }, () => blobs.put(tenant, bytes, 'text/plain')));
    expect(new Set(refs.map((ref) => ref.digest))).toEqual(new Set([digest]));
  });

  it("never answers from another tenant's blobs", async () => {
    const blobs = new FileBlobStore({ root });
    await blobs.put(tenant, bytes, 'text/plain');
    await expect(blobs.get(newId(), digest)).rejects.toMatchObject({ kind: 'NotFound', code: 'blob_not_found' });
    await expect(blobs.pathOf(newId(), digest)).rejects.toMatchObject({ kind: 'NotFound' });
  });

  it('refuses ids that are no ids, which would lead out of its folder', async () => {
    const blobs = new FileBlobStore({ root });
    await expect(blobs.get('../x', digest)).rejects.toMatchObject({
      kind: 'InvalidInput',
      fields: [{ path: 'tenantId' }],
    });
    await expect(blobs.get(tenant, '../../etc/passwd')).rejects.toMatchObject({ fields: [{ path: 'digest' }] });
  });

  it('names a blob whose bytes changed on disk', async () => {
    const blobs = new FileBlobStore({ root });
    await blobs.put(tenant, bytes, 'text/plain');
    writeFileSync(await blobs.pathOf(tenant, digest), 'other');
    await expect(blobs.get(tenant, digest)).rejects.toMatchObject({ code: 'blob_corrupt', context: { digest } });
  });

  it("refuses what exceeds the tenant's quota, counting what a former process kept", async () => {
    await new FileBlobStore({ root }).put(tenant, Buffer.alloc(60), 'a');
    const blobs = new FileBlobStore({ root, quotaBytesPerTenant: 100 });
    await blobs.put(tenant, Buffer.alloc(60), 'a');
    await blobs.put(tenant, Buffer.alloc(40, 1), 'a');
    await expect(blobs.put(tenant, Buffer.alloc(1, 2), 'a')).rejects.toMatchObject({
      kind: 'TooMany',
      code: 'blob_quota',
    });
    await blobs.put(newId(), Buffer.alloc(100), 'a');
    expect(readdirSync(join(root, 'tmp'))).toEqual([]);
  });
});
