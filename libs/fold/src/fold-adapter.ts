import { DomainError, type AdapterCheckpointed } from '#hotbed/contracts';
import type { AdapterHandle, AdapterSpec, Engine } from '#hotbed/engine';
import { readHistory, readOperations, recordOf, type AdapterHistory } from './adapter-history';
import { applyPrepared, prepareOperation, type OperationResult } from './apply-operation';
import type { EventReads } from './event-reads';

/** A persisted state to begin from instead of state(0). */
export interface FoldStart {
  checkpoint: Pick<AdapterCheckpointed, 'opIndex' | 'stateDigest'>;
  /** Path of its state file. */
  stateFile: string;
}

export interface FoldRequest {
  engine: Engine;
  events: EventReads;
  adapterId: string;
  /** n of the state(n) wanted; 0 = as created. */
  upToOpIndex: bigint;
  /** null = fold from the beginning, without any file. */
  from: FoldStart | null;
  /** The adapter's stream where the caller has read it already. */
  history?: AdapterHistory;
  /** Called before each operation is applied. */
  onOperation?: (opIndex: bigint) => void | Promise<void>;
}

export interface FoldResult {
  /** A live adapter of the engine that the caller owns, at state(opIndex). */
  adapter: AdapterHandle;
  opIndex: bigint;
  stateDigest: string;
  /** Every operation that was applied again, with what it gave. */
  digests: { opIndex: bigint; result: OperationResult }[];
  /** Where the fold began: 0, or the checkpoint's operation index. */
  startedAt: bigint;
}

/**
 * Derives state(n) of an adapter from its stream and compares every digest with the recorded one.
 * @throws DomainError `fold_diverged` (EngineFault) at the first operation whose bytes differ from what was recorded;
 * `base_mismatch` when the engine's base or numerics are not the adapter's. Nothing is left in the engine then.
 */
export async function foldAdapter(request: FoldRequest): Promise<FoldResult> {
  const { engine, events, upToOpIndex, from } = request;
  const history = request.history ?? (await readHistory(events, request.adapterId));
  assertSameBase(engine, history);
  if (upToOpIndex > BigInt(history.operations.length) || upToOpIndex < 0n) {
    throw new DomainError(
      'NotFound',
      'policy_state_not_found',
      `adapter ${history.adapterId} has operations 1..${history.operations.length}, not ${upToOpIndex}`,
    );
  }
  const { adapter, opIndex: startedAt } = await begin(engine, history, from);
  try {
    const digests: FoldResult['digests'] = [];
    for await (const placed of readOperations(history, events, startedAt + 1n, upToOpIndex)) {
      await request.onOperation?.(placed.opIndex);
      const result = await applyPrepared(engine, adapter, await prepareOperation(placed, events));
      assertAsRecorded(history, placed.opIndex, result);
      digests.push({ opIndex: placed.opIndex, result });
    }
    const stateDigest = digests.at(-1)?.result.stateDigest ?? (await engine.stateDigest(adapter, `${upToOpIndex}`));
    return { adapter, opIndex: upToOpIndex, stateDigest, digests, startedAt };
  } catch (error) {
    await engine.dropAdapter(adapter);
    throw error;
  }
}

/** @throws DomainError `base_mismatch`: the adapter belongs to other weights or other numerics. */
export function assertSameBase(engine: Engine, history: AdapterHistory): void {
  const { baseDigest, numericsId } = engine.info();
  const { created } = history;
  if (created.baseDigest === baseDigest && created.numericsId === numericsId) return;
  if (created.baseDigest === baseDigest) {
    throw new DomainError(
      'EngineFault',
      'base_mismatch',
      `adapter ${history.adapterId} was made under ${created.numericsId}, this engine computes ${numericsId}; ` +
        `a worker with HOTBED_NUMERICS=${created.numericsId} serves it`,
      { context: { numericsId: created.numericsId } },
    );
  }
  throw new DomainError(
    'EngineFault',
    'base_mismatch',
    `adapter ${history.adapterId} belongs to base ${created.baseDigest} (${created.numericsId}); ` +
      `this engine has ${baseDigest} (${numericsId})`,
  );
}

async function begin(
  engine: Engine,
  history: AdapterHistory,
  from: FoldStart | null,
): Promise<{ adapter: AdapterHandle; opIndex: bigint }> {
  if (from === null) {
    return { adapter: await engine.createAdapter(specOf(history), history.tenantId), opIndex: 0n };
  }
  const restored = await engine.restore(from.stateFile, history.tenantId);
  const digest = await engine.stateDigest(restored.adapter, from.checkpoint.opIndex);
  if (restored.opIndex === from.checkpoint.opIndex && digest === from.checkpoint.stateDigest) {
    return { adapter: restored.adapter, opIndex: BigInt(restored.opIndex) };
  }
  await engine.dropAdapter(restored.adapter);
  throw new DomainError(
    'EngineFault',
    'invalid_file',
    `state file of adapter ${history.adapterId} at operation ${from.checkpoint.opIndex} holds operation ` +
      `${restored.opIndex} with digest ${digest}, expected ${from.checkpoint.stateDigest}`,
  );
}

function specOf(history: AdapterHistory): AdapterSpec {
  const { rank, alpha, rslora, targets, seed } = history.created.spec;
  return { rank, alpha, rslora, targets, seed };
}

function assertAsRecorded(history: AdapterHistory, opIndex: bigint, result: OperationResult): void {
  const recorded = recordOf(history, opIndex).outcome;
  if (recorded === null) return;
  const outputs = result.outcome === 'applied' ? result.outputDigest : null;
  if (
    recorded.outcome === result.outcome &&
    recorded.stateDigest === result.stateDigest &&
    recorded.outputDigest === outputs
  ) {
    return;
  }
  throw new DomainError(
    'EngineFault',
    'fold_diverged',
    `operation ${opIndex} of adapter ${history.adapterId} gave ${result.outcome} ${result.stateDigest}, recorded is ` +
      `${recorded.outcome} ${recorded.stateDigest}; the adapter is stopped: check this machine before it trains on`,
    { context: { adapterId: history.adapterId, opIndex: opIndex.toString() } },
  );
}
