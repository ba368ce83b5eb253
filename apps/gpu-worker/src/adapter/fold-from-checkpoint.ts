import { foldAdapter, type AdapterHistory, type FoldResult } from '#hotbed/fold';
import { DomainError } from '#hotbed/contracts';
import type { AdapterTools } from './adapter-tools';

/**
 * state(n) from the newest checkpoint at or before n whose state file is complete and matches its digest, plus the
 * operations after it; from the beginning where there is none. A file that does not hold what its event promises is
 * passed over and named in the log.
 */
export async function foldFromCheckpoint(
  tools: AdapterTools,
  history: AdapterHistory,
  upToOpIndex: bigint,
  signal: AbortSignal,
): Promise<FoldResult> {
  const { engine, events, blobs, logger, failpoints } = tools;
  const request = {
    engine,
    events,
    adapterId: history.adapterId,
    upToOpIndex,
    history,
    onOperation: () => {
      signal.throwIfAborted();
      failpoints.hit('mid-recovery');
    },
  };
  const checkpoints = history.checkpoints.filter((c) => BigInt(c.opIndex) <= upToOpIndex);
  for (const checkpoint of checkpoints.reverse()) {
    try {
      const stateFile = await blobs.pathOf(history.tenantId, checkpoint.stateFile.digest);
      return await foldAdapter({ ...request, from: { checkpoint, stateFile } });
    } catch (error) {
      if (!isUnusableFile(error)) throw error;
      logger.error({ err: error, adapterId: history.adapterId, version: checkpoint.version }, 'state file unusable');
    }
  }
  return foldAdapter({ ...request, from: null });
}

function isUnusableFile(error: unknown): boolean {
  if (!(error instanceof DomainError)) return false;
  return error.kind === 'NotFound' || (error.kind === 'EngineFault' && error.code === 'invalid_file');
}
