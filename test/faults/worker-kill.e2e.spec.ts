/**
 * `kill -9` of the worker, at seeded points of its work. What must hold afterwards:
 *
 * 1. Every operation has exactly one outcome, in order (A3).
 * 2. Every state digest, the last and all before it, equals that of a run that nobody disturbed (A1).
 * 3. Recovery begins at a version where there is one, and replays fewer operations than there are.
 * 4. Every version's files are complete and match their digests (A6).
 * 5. Every prompt has exactly one answer, with the tokens of its pinned policy state (A2).
 */
import { createHash } from 'node:crypto';
import type { Operation } from '#hotbed/contracts';
import { toInt32Array } from '#hotbed/contracts';
import type { Engine } from '#hotbed/engine';
import { withTestDatabase } from '#hotbed/event-store/testing';
import { foldAdapter } from '#hotbed/fold';
import { A_SPEC, Random, aTrainingScript, openTinyBase } from '#hotbed/fold/testing';
import { FAILPOINTS, type FailpointName } from '../../apps/gpu-worker/src/failpoint/failpoints';
import { SAMPLING, ScriptedLog, ofType } from '../../apps/gpu-worker/src/testing/scripted-log';
import { WorkerProcess } from './support/worker-process';

jest.setTimeout(420_000);

const SEED = 20_261_130;
const ADAPTERS = 4;
const PROMPTS = [
  [1, 5, 6],
  [1, 7, 8, 9],
];
/** Long enough that a forward-backward pass is under way when the process ends inside it. */
const SIZE = { groups: 4, branches: 6, tokens: 16 };

const db = withTestDatabase();
let engine: Engine;

beforeAll(async () => {
  engine = await openTinyBase();
});
afterAll(() => engine.dispose());

/** What a start surely reaches: a claim or more, an operation to replay, one request's prompts. */
const MOST_HITS: Partial<Record<FailpointName, number>> = {
  'after-lease-claim': 1,
  'mid-recovery': 1,
  'mid-sample': 2,
  'before-rollouts-commit': 2,
  'after-rollouts-commit': 2,
};

/** Every failpoint twice, at hits drawn from the seed, in an order drawn from the seed. */
function plannedKills(): { point: FailpointName; hit: number }[] {
  const random = new Random(SEED);
  const kills = [...FAILPOINTS, ...FAILPOINTS].map((point) => ({
    point,
    hit: random.integer(1, MOST_HITS[point] ?? 4),
    order: random.unit(),
  }));
  return kills.sort((a, b) => a.order - b.order).map(({ point, hit }) => ({ point, hit }));
}

function scripts(): Operation[][] {
  return Array.from({ length: ADAPTERS }, (_, i) => aTrainingScript(SEED + i, 24, 2, SIZE));
}

async function adaptersWith(log: ScriptedLog, operations: Operation[][]): Promise<string[]> {
  const ids: string[] = [];
  for (const [i, script] of operations.entries()) {
    const adapterId = await log.createAdapter({ ...A_SPEC, rank: 2 + i, seed: `${i}` });
    await log.accept(adapterId, script);
    ids.push(adapterId);
  }
  return ids;
}

describe('a worker that is killed again and again', () => {
  it('loses nothing, does nothing twice, and changes no bit', async () => {
    const operations = scripts();
    const total = operations.reduce((sum, script) => sum + script.length, 0);
    const undisturbed = new ScriptedLog(db.store, engine.info());
    const expected = await undisturbedDigests(undisturbed, operations);

    const log = new ScriptedLog(db.store, engine.info());
    const adapters = await adaptersWith(log, operations);
    const requests: { requestId: string; adapterId: string; opIndex: bigint }[] = [];
    const killed = new Map<string, number>();
    const recoveries: WorkerProcess['recoveries'] = [];
    for (const [i, { point, hit }] of plannedKills().entries()) {
      const adapterId = adapters[i % ADAPTERS]!;
      const opIndex = (await db.store.adapterHead(adapterId))!.appliedOpIndex;
      requests.push({ requestId: await log.request({ adapterId, opIndex }, PROMPTS), adapterId, opIndex });
      const worker = WorkerProcess.start(db, { HOTBED_FAILPOINTS: `${point}:${hit}` });
      const { signal } = await exitOrDone(worker, log, adapters, operations);
      if (signal === 'SIGKILL') killed.set(point, (killed.get(point) ?? 0) + 1);
      recoveries.push(...worker.recoveries);
    }
    const last = WorkerProcess.start(db);
    for (const [i, adapterId] of adapters.entries())
      await log.applied(adapterId, BigInt(operations[i]!.length), 120_000);
    for (const { requestId } of requests) await log.answers(requestId, PROMPTS.length, 120_000);
    recoveries.push(...last.recoveries);
    last.kill('SIGTERM');
    expect(await last.exited).toEqual({ code: 0, signal: null });

    const kills = [...killed.values()].reduce((a, b) => a + b, 0);
    const fromVersion = recoveries.filter((r) => r.from > 0);
    const replayed = recoveries.reduce((sum, r) => sum + r.replayed, 0);
    const applied = recoveries.reduce((sum, r) => sum + r.opIndex, 0);
    process.stdout.write(
      `${kills} kills at ${killed.size} points, ${recoveries.length} recoveries, ${fromVersion.length} from a version: ` +
        `${replayed} operations replayed of ${applied} applied before (${total} in all)\n`,
    );
    expect(kills).toBeGreaterThanOrEqual(20);
    expect([...killed.keys()].sort()).toEqual([...FAILPOINTS].sort());
    expect(fromVersion.length).toBeGreaterThan(0);
    for (const recovery of fromVersion) expect(recovery.replayed).toBeLessThan(recovery.opIndex);

    for (const [i, adapterId] of adapters.entries()) {
      expect(await log.digests(adapterId)).toEqual(expected[i]);
      await expectCompleteVersions(log, adapterId);
    }
    for (const request of requests) await expectPinnedAnswers(log, request);
  });
});

/** Digests of every state in a run from beginning to end in one process. */
async function undisturbedDigests(log: ScriptedLog, operations: Operation[][]): Promise<string[][]> {
  const adapters = await adaptersWith(log, operations);
  const worker = WorkerProcess.start(db);
  for (const [i, adapterId] of adapters.entries()) await log.applied(adapterId, BigInt(operations[i]!.length), 120_000);
  worker.kill('SIGTERM');
  expect(await worker.exited).toEqual({ code: 0, signal: null });
  return Promise.all(adapters.map((adapterId) => log.digests(adapterId)));
}

/** The worker's own end, or, where its failpoint was never reached, ours when there is nothing left to do. */
async function exitOrDone(
  worker: WorkerProcess,
  log: ScriptedLog,
  adapters: readonly string[],
  operations: Operation[][],
): Promise<{ signal: NodeJS.Signals | null }> {
  let ended = false;
  const exit = worker.exited.then((result) => {
    ended = true;
    return result;
  });
  const allApplied = async (): Promise<boolean> => {
    for (const [i, adapterId] of adapters.entries()) {
      if ((await log.events.adapterHead(adapterId))!.appliedOpIndex < BigInt(operations[i]!.length)) return false;
    }
    return true;
  };
  while (!ended) {
    if (await allApplied()) {
      worker.kill('SIGTERM');
      const result = await exit;
      return { signal: result.code === 0 ? null : result.signal };
    }
    await Promise.race([exit, new Promise((resolve) => setTimeout(resolve, 50))]);
  }
  return exit;
}

async function expectCompleteVersions(log: ScriptedLog, adapterId: string): Promise<void> {
  const versions = await log.eventsOfType(adapterId, 'AdapterCheckpointed');
  expect(versions.map((v) => v.payload.version)).toEqual(versions.map((_, i) => i + 1));
  for (const { payload } of versions) {
    for (const file of [payload.weightsFile, payload.configFile, payload.stateFile]) {
      const bytes = await db.blobs.get(log.tenantId, file.digest);
      expect(createHash('sha256').update(bytes).digest('hex')).toBe(file.digest);
    }
  }
}

async function expectPinnedAnswers(
  log: ScriptedLog,
  { requestId, adapterId, opIndex }: { requestId: string; adapterId: string; opIndex: bigint },
): Promise<void> {
  const answers = ofType(await log.answers(requestId, PROMPTS.length), 'RolloutsCompleted');
  expect(answers.map((a) => a.payload.promptIndex).sort()).toEqual(PROMPTS.map((_, i) => i));
  const folded = await foldAdapter({ engine, events: db.store, adapterId, upToOpIndex: opIndex, from: null });
  const policy = await engine.pin(folded.adapter);
  for (const { payload } of answers) {
    const { promptIndex } = payload;
    const expected = await engine.sample({
      policy,
      prompt: Int32Array.from(PROMPTS[promptIndex]!),
      seeds: payload.rollouts.map((_, s) => `${100 * (promptIndex + 1) + s}`),
      params: SAMPLING,
      promptLogprobs: false,
    });
    expect(payload.rollouts.map((r) => [...toInt32Array(r.tokens)])).toEqual(
      expected.sequences.map((s) => [...s.tokens]),
    );
  }
  engine.release(policy);
  await engine.dropAdapter(folded.adapter);
}
