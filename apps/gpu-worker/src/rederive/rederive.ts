import { NotFound, type AdapterCheckpointed } from '#hotbed/contracts';
import type { Engine } from '#hotbed/engine';
import { foldAdapter, type AdapterHistory, type EventReads } from '#hotbed/fold';

export interface Rederived {
  adapterId: string;
  version: number;
  opIndex: string;
  /** Operations folded from state(0). */
  operations: number;
  recorded: { stateDigest: string; weightsDigest: string };
  derived: { stateDigest: string; weightsDigest: string };
  equal: boolean;
}

/**
 * Derives a version again from its operations alone: no snapshot and no version file is opened.
 * @throws NotFound; EngineFault `fold_diverged` at the first operation that gives other bytes than were recorded
 */
export async function rederiveVersion(
  engine: Engine,
  events: EventReads,
  history: AdapterHistory,
  version: number,
): Promise<Rederived> {
  const { adapterId } = history;
  const checkpoint = history.checkpoints.find((c) => c.version === version);
  if (checkpoint === undefined) throw new NotFound('version', String(version));
  const upToOpIndex = BigInt(checkpoint.opIndex);
  const fold = await foldAdapter({ engine, events, adapterId, upToOpIndex, from: null, history });
  const policy = await engine.pin(fold.adapter);
  try {
    const derived = { stateDigest: fold.stateDigest, weightsDigest: await engine.weightsDigest(policy) };
    const recorded = digestsOf(checkpoint);
    return {
      adapterId,
      version,
      opIndex: checkpoint.opIndex,
      operations: fold.digests.length,
      recorded,
      derived,
      equal: derived.stateDigest === recorded.stateDigest && derived.weightsDigest === recorded.weightsDigest,
    };
  } finally {
    engine.release(policy);
    await engine.dropAdapter(fold.adapter);
  }
}

function digestsOf({ stateDigest, weightsDigest }: AdapterCheckpointed): Rederived['recorded'] {
  return { stateDigest, weightsDigest };
}
