import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { float32Tensor, int32Tensor, streamId, type AdapterSpecPayload, type Operation } from '#hotbed/contracts';
import type { Engine } from '#hotbed/engine';
import {
  ADAPTER,
  A_SPEC,
  CHECKPOINT,
  EVERY_LOSS,
  Random,
  RecordedEvents,
  STEP,
  WORKER,
  aScoredGroup,
  aTrainingScript,
  openTinyBase,
  underLoss,
} from '#hotbed/fold/testing';
import { foldAdapter, type FoldResult } from './fold-adapter';

const STREAM = streamId('adapter', ADAPTER);
let engine: Engine;
let folder: string;

beforeAll(async () => {
  folder = mkdtempSync(join(tmpdir(), 'hotbed-fold-'));
  engine = await openTinyBase();
});
afterAll(async () => {
  await engine.dispose();
  rmSync(folder, { recursive: true, force: true });
});

function anAdapterWith(
  operations: readonly Operation[],
  recorded?: FoldResult,
  spec: AdapterSpecPayload = A_SPEC,
): RecordedEvents {
  const { baseDigest, numericsId } = engine.info();
  const events = new RecordedEvents();
  events.record(STREAM, 'AdapterCreated', {
    adapterId: ADAPTER,
    name: 'a',
    spec,
    baseDigest,
    numericsId,
    experimentId: null,
  });
  const origin = { kind: 'client' as const, sessionId: 's' };
  operations.forEach((operation, i) => {
    const opIndex = `${i + 1}`;
    events.record(STREAM, 'OperationAccepted', { adapterId: ADAPTER, opIndex, operation, numericsId, origin });
  });
  for (const { opIndex, result } of recorded?.digests ?? []) {
    const kind = operations[Number(opIndex) - 1]!.kind;
    const common = { adapterId: ADAPTER, opIndex: `${opIndex}`, kind, workerId: WORKER, leaseEpoch: '1' };
    const { stateDigest } = result;
    if (result.outcome === 'failed') {
      const { code, message } = result;
      events.record(STREAM, 'OperationFailed', { ...common, stateDigest, code, message });
    } else {
      const { outputDigest, metrics } = result;
      events.record(STREAM, 'OperationApplied', { ...common, stateDigest, outputDigest, metrics });
    }
  }
  return events;
}

async function fold(events: RecordedEvents, upTo: number): Promise<FoldResult> {
  return foldAdapter({ engine, events, adapterId: ADAPTER, upToOpIndex: BigInt(upTo), from: null });
}

const digestsOf = (result: FoldResult): string[] => result.digests.map((d) => `${d.opIndex} ${d.result.stateDigest}`);

describe('folding an adapter', () => {
  const script = aTrainingScript(11, 4, 2);

  it('gives the same digest after every operation, each time', async () => {
    const first = await fold(anAdapterWith(script), script.length);
    const second = await fold(anAdapterWith(script, first), script.length);
    expect(digestsOf(second)).toEqual(digestsOf(first));
    expect(new Set(digestsOf(first)).size).toBe(script.length);
    expect(second.stateDigest).toBe(first.digests.at(-1)?.result.stateDigest);
  });

  it('continues from a snapshot of any operation, an accumulated gradient included, with the same bytes', async () => {
    const whole = await fold(anAdapterWith(script), script.length);
    const events = anAdapterWith(script, whole);
    for (let n = 1; n < script.length; n++) {
      const part = await fold(events, n);
      const file = await engine.snapshot(part.adapter, `${n}`, join(folder, `at-${n}`));
      const checkpoint = { opIndex: `${n}`, stateDigest: part.stateDigest };
      const from = { checkpoint, stateFile: file.path };
      const rest = await foldAdapter({ engine, events, adapterId: ADAPTER, upToOpIndex: BigInt(script.length), from });
      expect(rest.startedAt).toBe(BigInt(n));
      expect(digestsOf(rest)).toEqual(digestsOf(whole).slice(n));
    }
  });

  it('gives the same digests under every loss, with several targets and an adapter on the head', async () => {
    const random = new Random(5);
    const operations = EVERY_LOSS.flatMap((loss) => {
      const calls =
        loss.name === 'gspo' ? [underLoss(random, loss)] : [underLoss(random, loss), underLoss(random, loss, 3)];
      return [...calls, STEP];
    });
    const spec: AdapterSpecPayload = { ...A_SPEC, targets: ['q', 'down', 'lm_head'] };
    const first = await fold(anAdapterWith(operations, undefined, spec), operations.length);
    expect(first.digests.map((d) => d.result.outcome)).toEqual(operations.map(() => 'applied'));
    expect(new Set(digestsOf(first)).size).toBe(operations.length);
    const events = anAdapterWith(operations, first, spec);
    expect(digestsOf(await fold(events, operations.length))).toEqual(digestsOf(first));
    const file = await engine.snapshot((await fold(events, 8)).adapter, '8', join(folder, 'every-loss'));
    const checkpoint = { opIndex: '8', stateDigest: first.digests[7]!.result.stateDigest };
    const upToOpIndex = BigInt(operations.length);
    const from = { checkpoint, stateFile: file.path };
    const rest = await foldAdapter({ engine, events, adapterId: ADAPTER, upToOpIndex, from });
    expect(digestsOf(rest)).toEqual(digestsOf(first).slice(8));
  });

  it('refuses a state file that holds something else than its event promises', async () => {
    const part = await fold(anAdapterWith(script), 3);
    const file = await engine.snapshot(part.adapter, '3', join(folder, 'other'));
    const from = { checkpoint: { opIndex: '3', stateDigest: '00'.repeat(32) }, stateFile: file.path };
    const before = engine.stats().adapters;
    await expect(
      foldAdapter({ engine, events: anAdapterWith(script), adapterId: ADAPTER, upToOpIndex: 4n, from }),
    ).rejects.toMatchObject({ code: 'invalid_file' });
    expect(engine.stats().adapters).toBe(before);
  });

  it('stops at the first operation whose digest differs from the recorded one, and leaves nothing behind', async () => {
    const whole = await fold(anAdapterWith(script), script.length);
    whole.digests[4]!.result.stateDigest = '00'.repeat(32);
    const before = engine.stats().adapters;
    await expect(fold(anAdapterWith(script, whole), script.length)).rejects.toMatchObject({
      kind: 'EngineFault',
      code: 'fold_diverged',
      context: { opIndex: '5' },
    });
    expect(engine.stats().adapters).toBe(before);
  });

  it('meets a deterministic failure again, as a no-op', async () => {
    const [supervised] = script as [Extract<Operation, { kind: 'forward_backward' }>];
    const [datum] = supervised.datums;
    const outOfRange = { ...supervised, datums: [{ ...datum, prompt: int32Tensor([1_000_000]) }] } as Operation;
    const operations: Operation[] = [supervised, outOfRange, STEP, CHECKPOINT];
    const first = await fold(anAdapterWith(operations), 4);
    expect(first.digests[1]?.result).toMatchObject({ outcome: 'failed', code: 'invalid_argument' });
    await fold(anAdapterWith(operations, first), 4);
    const without = await fold(anAdapterWith([supervised, STEP]), 2);
    const [a, b] = await Promise.all([
      engine.tensors(first.adapter, 'weight'),
      engine.tensors(without.adapter, 'weight'),
    ]);
    expect(a).toEqual(b);
  });

  it.each([
    ['a loss that is not finite', -1e9, 1, ['failed not_finite', 'applied']],
    // Each ratio is near 1e38, still a float; their gradients add up to what is none.
    ['a gradient that is not finite, at the step', -92, 400, ['applied', 'failed not_finite']],
  ])('meets %s again, as a no-op', async (_, logprob, copies, outcomes) => {
    const group = aScoredGroup(new Random(5), 1, 4);
    const branches = [{ ...group.branches[0]!, logprobs: float32Tensor([logprob, logprob, logprob, logprob]) }];
    const overflowing: Operation = {
      kind: 'forward_backward',
      loss: { name: 'importance_sampling' },
      datums: Array.from({ length: copies }, () => ({ ...group, branches })),
    };
    const operations = [overflowing, { ...STEP, adam: { ...STEP.adam, weightDecay: 0 } }, CHECKPOINT];
    const first = await fold(anAdapterWith(operations), 3);
    const results = first.digests.map(({ result }) =>
      result.outcome === 'failed' ? `failed ${result.code}` : result.outcome,
    );
    expect(results).toEqual([...outcomes, 'applied']);
    const untouched = await fold(anAdapterWith([]), 0);
    expect(await engine.tensors(first.adapter, 'weight')).toEqual(await engine.tensors(untouched.adapter, 'weight'));
    const again = await fold(anAdapterWith(operations, first), 3);
    expect(digestsOf(again)).toEqual(digestsOf(first));
  });

  it('refuses an adapter of another base', async () => {
    const events = new RecordedEvents();
    events.record(STREAM, 'AdapterCreated', {
      adapterId: ADAPTER,
      name: 'a',
      spec: A_SPEC,
      baseDigest: 'ff'.repeat(32),
      numericsId: 'f32-1',
      experimentId: null,
    });
    await expect(fold(events, 0)).rejects.toMatchObject({ code: 'base_mismatch' });
  });

  it('refuses a policy state that does not exist', async () => {
    await expect(fold(anAdapterWith(script), script.length + 1)).rejects.toMatchObject({
      code: 'policy_state_not_found',
    });
  });
});
