import { streamId, type Operation } from '#hotbed/contracts';
import { catchUp, readHistory, readOperations, recordOutcome, weightsIndex } from './adapter-history';
import type { PlacedOperation } from './apply-operation';
import { ADAPTER, BASE_DIGEST, RecordedEvents, WORKER } from '#hotbed/fold/testing';

const STREAM = streamId('adapter', ADAPTER);
const STEP: Operation = {
  kind: 'optim_step',
  adam: { learningRate: 1e-3, beta1: 0.9, beta2: 0.95, eps: 1e-8, weightDecay: 0, gradClipNorm: 1 },
};
const CHECKPOINT: Operation = { kind: 'checkpoint', label: null };

function aCreatedAdapter(): RecordedEvents {
  const events = new RecordedEvents();
  events.record(STREAM, 'AdapterCreated', {
    adapterId: ADAPTER,
    name: 'a',
    spec: { rank: 4, alpha: 8, rslora: false, targets: ['q'], seed: '1' },
    baseDigest: BASE_DIGEST,
    numericsId: 'f32-1',
    experimentId: null,
  });
  return events;
}

function accept(events: RecordedEvents, opIndex: number, operation: Operation, numericsId = 'f32-1'): void {
  const origin = { kind: 'client' as const, sessionId: 's' };
  events.record(STREAM, 'OperationAccepted', {
    adapterId: ADAPTER,
    opIndex: `${opIndex}`,
    operation,
    numericsId,
    origin,
  });
}

function outcome(events: RecordedEvents, opIndex: number, operation: Operation, failed = false): void {
  const common = {
    adapterId: ADAPTER,
    opIndex: `${opIndex}`,
    kind: operation.kind,
    workerId: WORKER,
    leaseEpoch: '1',
    stateDigest: opIndex.toString(16).padStart(64, '0'),
  };
  if (failed) events.record(STREAM, 'OperationFailed', { ...common, code: 'not_finite', message: 'norm' });
  else {
    const metrics = { lossSum: null, tokens: null, gradNorm: null, step: null };
    events.record(STREAM, 'OperationApplied', { ...common, outputDigest: null, metrics });
  }
}

describe('an adapter whose operations were accepted ahead of being applied', () => {
  it('has the rest pending, in order', async () => {
    const events = aCreatedAdapter();
    accept(events, 1, STEP);
    accept(events, 2, CHECKPOINT);
    accept(events, 3, STEP);
    outcome(events, 1, STEP);
    const history = await readHistory(events, ADAPTER);
    expect(history.applied).toBe(1n);
    expect(history.pending.map((p) => p.opIndex)).toEqual([2n, 3n]);
  });

  it('reads its operations again from the log, interleaved outcomes or not', async () => {
    const events = aCreatedAdapter();
    accept(events, 1, STEP);
    outcome(events, 1, STEP);
    accept(events, 2, CHECKPOINT);
    accept(events, 3, STEP);
    outcome(events, 2, CHECKPOINT);
    const history = await readHistory(events, ADAPTER);
    const operations: PlacedOperation[] = [];
    for await (const operation of readOperations(history, events, 2n, 3n)) operations.push(operation);
    expect(operations.map((o) => [o.opIndex, o.operation.kind, o.acceptedAt])).toEqual([
      [2n, 'checkpoint', 4n],
      [3n, 'optim_step', 5n],
    ]);
  });

  it('never goes back when an outcome that it knew is read again', async () => {
    const events = aCreatedAdapter();
    accept(events, 1, STEP);
    accept(events, 2, STEP);
    const history = await readHistory(events, ADAPTER);
    for (const n of [1n, 2n]) recordOutcome(history, n, { outcome: 'applied', stateDigest: 'd', outputDigest: null });
    outcome(events, 1, STEP);
    await catchUp(history, events);
    expect(history.applied).toBe(2n);
    expect(history.pending).toEqual([]);
  });
});

describe('the weights of a policy state', () => {
  it('are those after the last optimizer step that did not fail', async () => {
    const events = aCreatedAdapter();
    [STEP, CHECKPOINT, STEP, CHECKPOINT].forEach((operation, i) => accept(events, i + 1, operation));
    outcome(events, 1, STEP);
    outcome(events, 2, CHECKPOINT);
    outcome(events, 3, STEP, true);
    const history = await readHistory(events, ADAPTER);
    expect([0n, 1n, 2n, 3n, 4n].map((n) => weightsIndex(history, n))).toEqual([0n, 1n, 1n, 1n, 1n]);
  });
});

it('refuses an operation that was accepted for other numerics', async () => {
  const events = aCreatedAdapter();
  accept(events, 1, STEP, 'bf16-1');
  await expect(readHistory(events, ADAPTER)).rejects.toMatchObject({ code: 'numerics_mismatch' });
});

it('refuses an adapter that nobody created', async () => {
  await expect(readHistory(new RecordedEvents(), ADAPTER)).rejects.toMatchObject({ kind: 'NotFound' });
});
