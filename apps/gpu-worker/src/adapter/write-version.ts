import { rm } from 'node:fs/promises';
import { DomainError, type AdapterCheckpointed, type BlobRef } from '#hotbed/contracts';
import type { AdapterHandle, PolicyHandle } from '#hotbed/engine';
import type { AdapterTools } from './adapter-tools';

export type VersionFiles = Pick<AdapterCheckpointed, 'weightsDigest' | 'weightsFile' | 'configFile' | 'stateFile'>;

/**
 * Writes the files of a version: the whole training state, PEFT's weights and PEFT's configuration. They are complete,
 * at their final place and match their digests when this returns; until then no event names them.
 */
export async function writeVersion(
  tools: AdapterTools,
  tenantId: string,
  adapter: AdapterHandle,
  opIndex: bigint,
): Promise<VersionFiles> {
  const { engine, blobs, failpoints } = tools;
  const policy = await engine.pin(adapter);
  try {
    const stateFile = await intoBlobs(tools, tenantId, 'application/vnd.hotbed.adapter-state', async (path) => {
      const file = await engine.snapshot(adapter, opIndex.toString(), path);
      failpoints.hit('after-snapshot');
      return file.digest;
    });
    const weightsFile = await weightsBlob(tools, tenantId, policy);
    const config = Buffer.from(engine.peftConfig(policy), 'utf8');
    const configFile = await blobs.put(tenantId, config, 'application/json');
    failpoints.hit('after-blob-rename');
    return { weightsDigest: weightsFile.digest, weightsFile, configFile, stateFile };
  } finally {
    engine.release(policy);
  }
}

async function weightsBlob(tools: AdapterTools, tenantId: string, policy: PolicyHandle): Promise<BlobRef> {
  const digest = await tools.engine.weightsDigest(policy);
  const blob = await intoBlobs(
    tools,
    tenantId,
    'application/vnd.safetensors',
    async (path) => (await tools.engine.exportWeights(policy, path)).digest,
  );
  assertDigest(digest, blob);
  return blob;
}

async function intoBlobs(
  { blobs, failpoints }: AdapterTools,
  tenantId: string,
  mediaType: string,
  write: (path: string) => Promise<string>,
): Promise<BlobRef> {
  const path = await blobs.temporaryPath();
  try {
    const digest = await write(path);
    const blob = await blobs.adopt(tenantId, path, mediaType);
    failpoints.hit('after-blob-rename');
    assertDigest(digest, blob);
    return blob;
  } catch (error) {
    await rm(path, { force: true });
    throw error;
  }
}

function assertDigest(expected: string, blob: BlobRef): void {
  if (blob.digest === expected) return;
  throw new DomainError('EngineFault', 'io', `a file was stored as ${blob.digest} but written as ${expected}`, {
    retryable: true,
  });
}
