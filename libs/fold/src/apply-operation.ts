import { DomainError, type LossPayload, type Operation, type OperationApplied } from '#hotbed/contracts';
import type { AdapterHandle, Datum, Engine, Loss } from '#hotbed/engine';
import { datumsOf } from './datums';
import type { EventReads } from './event-reads';
import { outputDigest } from './output-digest';
import { whileBusy } from './while-busy';

/** An operation at its place: what OperationAccepted recorded. */
export interface PlacedOperation {
  opIndex: bigint;
  operation: Operation;
  /** Global position, event id and correlation of its OperationAccepted. */
  acceptedAt: bigint;
  acceptedEventId: string;
  correlationId: string;
}

/** An operation with everything read that applying it needs: no IO is left between it and the engine. */
export interface PreparedOperation extends PlacedOperation {
  /** Of forward_backward; null for other kinds and where refused. */
  datums: Datum[] | null;
  /** Why it can never be applied, whatever the state: it refers to nothing, or its tensors disagree. */
  refusal: DomainError | null;
}

export type OperationMetrics = OperationApplied['metrics'];

/** What applying gave; `stateDigest` is that of state(opIndex), which a failed operation leaves as state(opIndex - 1). */
export type OperationResult =
  | { outcome: 'applied'; stateDigest: string; outputDigest: string | null; metrics: OperationMetrics }
  | { outcome: 'failed'; stateDigest: string; code: string; message: string };

const NO_METRICS: OperationMetrics = { lossSum: null, tokens: null, gradNorm: null, step: null };

/** Reads what the operation refers to. @throws Unavailable when the log cannot be read now. */
export async function prepareOperation(placed: PlacedOperation, events: EventReads): Promise<PreparedOperation> {
  if (placed.operation.kind !== 'forward_backward') return { ...placed, datums: null, refusal: null };
  try {
    return { ...placed, datums: await datumsOf(placed.operation, placed.acceptedAt, events), refusal: null };
  } catch (error) {
    if (error instanceof DomainError && isDeterministicFailure(error)) {
      return { ...placed, datums: null, refusal: error };
    }
    throw error;
  }
}

/**
 * state(n) = apply(operation(n), state(n-1)): the only way in which an adapter's bytes change. A failure that is a
 * function of (state, operation) is a result, and a no-op; anything else is thrown, and the handle is then to be
 * dropped: its adapter may be ahead of what is recorded.
 */
export async function applyPrepared(
  engine: Engine,
  adapter: AdapterHandle,
  prepared: PreparedOperation,
): Promise<OperationResult> {
  try {
    if (prepared.refusal !== null) throw prepared.refusal;
    const { outputDigest, metrics } = await compute(engine, adapter, prepared);
    return {
      outcome: 'applied',
      stateDigest: await engine.stateDigest(adapter, prepared.opIndex.toString()),
      outputDigest,
      metrics,
    };
  } catch (error) {
    if (!(error instanceof DomainError) || !isDeterministicFailure(error)) throw error;
    return {
      outcome: 'failed',
      stateDigest: await engine.stateDigest(adapter, prepared.opIndex.toString()),
      code: error.code,
      message: error.message,
    };
  }
}

export async function applyOperation(
  engine: Engine,
  adapter: AdapterHandle,
  placed: PlacedOperation,
  events: EventReads,
): Promise<OperationResult> {
  return applyPrepared(engine, adapter, await prepareOperation(placed, events));
}

/** Whether an error is a function of (state, operation), so that every replay meets it again. */
export function isDeterministicFailure(error: DomainError): boolean {
  if (error.kind === 'InvalidInput') return true;
  return error.kind === 'EngineFault' && (error.code === 'invalid_argument' || error.code === 'not_finite');
}

async function compute(
  engine: Engine,
  adapter: AdapterHandle,
  { operation, datums }: PreparedOperation,
): Promise<{ outputDigest: string | null; metrics: OperationMetrics }> {
  switch (operation.kind) {
    case 'forward_backward': {
      const result = await whileBusy(() => engine.forwardBackward(adapter, engineLoss(operation.loss), datums ?? []));
      const metrics = { ...NO_METRICS, lossSum: finiteOrNull(result.lossSum), tokens: result.tokens };
      return { outputDigest: outputDigest(result.logprobs), metrics };
    }
    case 'optim_step': {
      const result = await engine.optimStep(adapter, operation.adam);
      return {
        outputDigest: null,
        metrics: { ...NO_METRICS, gradNorm: finiteOrNull(result.gradNorm), step: result.step },
      };
    }
    case 'checkpoint':
      // Saves the state and does not change it; whoever keeps versions writes the files.
      return { outputDigest: null, metrics: NO_METRICS };
  }
}

export function engineLoss(loss: LossPayload): Loss {
  return {
    name: loss.name,
    clipLow: 'clipLow' in loss ? loss.clipLow : null,
    clipHigh: 'clipHigh' in loss ? loss.clipHigh : null,
    beta: 'beta' in loss ? loss.beta : null,
  };
}

/** JSON has no NaN and no infinity; metrics are for people, the digests hold the truth. */
function finiteOrNull(value: number): number | null {
  return Number.isFinite(value) ? value : null;
}
