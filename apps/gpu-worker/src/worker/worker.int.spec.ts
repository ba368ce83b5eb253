import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createHash } from 'node:crypto';
import { resolve } from 'node:path';
import {
  Unavailable,
  int32Tensor,
  toFloat32Array,
  toInt32Array,
  type AppendItem,
  type AppendResult,
  type BlobRef,
  type Operation,
} from '#hotbed/contracts';
import { EngineFault, EvictingEngine, type Engine } from '#hotbed/engine';
import { FileBlobStore, PgEventStore } from '#hotbed/event-store';
import { withTestDatabase } from '#hotbed/event-store/testing';
import { foldAdapter } from '#hotbed/fold';
import {
  A_SPEC,
  TINY_BASE,
  CHECKPOINT,
  EVERY_LOSS,
  Random,
  STEP,
  aDemonstration,
  aTrainingScript,
  openTinyBase,
  supervised,
  underLoss,
} from '#hotbed/fold/testing';
import { openModelFolder } from '#hotbed/models';
import { SAMPLING, ScriptedLog, ofType, until } from '../testing/scripted-log';
import { startTestWorker } from '../testing/test-worker';
import type { Worker } from './worker';

jest.setTimeout(60_000);

const SEEDLING = resolve(__dirname, '../../../../models/seedling');

const db = withTestDatabase();
let engine: Engine;
let log: ScriptedLog;
const workers: Worker[] = [];

beforeAll(async () => {
  engine = await openTinyBase();
});
beforeEach(() => {
  log = new ScriptedLog(db.store, engine.info());
});
afterEach(async () => {
  for (const worker of workers.splice(0)) await worker.stop('test');
});
afterAll(() => engine.dispose());

async function aWorker(options: Parameters<typeof startTestWorker>[2] = {}): Promise<Worker> {
  const worker = await startTestWorker(db, engine, options);
  workers.push(worker);
  return worker;
}

/** Digests of every state, derived from the log alone. */
async function derived(adapterId: string, upTo: bigint): Promise<string[]> {
  const folded = await foldAdapter({ engine, events: db.store, adapterId, upToOpIndex: upTo, from: null });
  await engine.dropAdapter(folded.adapter);
  return folded.digests.map((d) => `${d.opIndex} ${d.result.stateDigest}`);
}

describe('a worker with accepted operations', () => {
  it('applies every one of them once, in order, to the bytes that the log derives', async () => {
    const script = aTrainingScript(1, 4, 2);
    const adapters = await Promise.all([1, 2, 3].map((seed) => log.createAdapter({ ...A_SPEC, seed: `${seed}` })));
    await Promise.all(adapters.map((adapterId) => log.accept(adapterId, script)));
    await aWorker();
    for (const adapterId of adapters) {
      await log.applied(adapterId, BigInt(script.length));
      const digests = await log.digests(adapterId);
      expect(digests.map((d) => Number(d.split(' ')[0]))).toEqual(script.map((_, i) => i + 1));
      expect(digests).toEqual(await derived(adapterId, BigInt(script.length)));
    }
  });

  it('goes on with operations that arrive while it runs', async () => {
    const script = aTrainingScript(2, 3, 3);
    const adapterId = await log.createAdapter(A_SPEC);
    await aWorker();
    for (const operation of script) await log.applied(adapterId, await log.accept(adapterId, [operation]));
    expect(await log.digests(adapterId)).toEqual(await derived(adapterId, BigInt(script.length)));
  });

  it('applies every loss, several targets per position and an adapter on the head', async () => {
    const random = new Random(9);
    const operations = EVERY_LOSS.flatMap((loss) => [underLoss(random, loss, loss.name === 'gspo' ? 1 : 2), STEP]);
    const adapterId = await log.createAdapter({ ...A_SPEC, targets: ['v', 'lm_head'] });
    const last = await log.accept(adapterId, [...operations, CHECKPOINT]);
    await aWorker();
    await log.applied(adapterId, last);
    expect(await log.digests(adapterId)).toEqual(await derived(adapterId, last));
    const applied = await log.eventsOfType(adapterId, 'OperationApplied');
    expect(applied).toHaveLength(operations.length + 1);
    const [version] = await log.eventsOfType(adapterId, 'AdapterCheckpointed');
    const weights = await db.blobs.get(log.tenantId, version!.payload.weightsFile.digest);
    expect(weights.toString('latin1')).toContain('base_model.model.lm_head.lora_A.weight');
  });

  it('makes versions whose files are complete and match their digests', async () => {
    const adapterId = await log.createAdapter({ ...A_SPEC, rank: 8 });
    await log.accept(adapterId, aTrainingScript(3, 4, 2));
    await aWorker();
    await log.applied(adapterId, 14n);
    const versions = await log.eventsOfType(adapterId, 'AdapterCheckpointed');
    expect(versions.map((v) => [v.payload.version, v.payload.parentVersion, v.payload.opIndex])).toEqual([
      [1, null, '7'],
      [2, 1, '14'],
    ]);
    for (const { payload } of versions) {
      expect(payload.weightsFile.digest).toBe(payload.weightsDigest);
      for (const file of [payload.weightsFile, payload.configFile, payload.stateFile]) {
        const bytes = await db.blobs.get(log.tenantId, file.digest);
        expect(createHash('sha256').update(bytes).digest('hex')).toBe(file.digest);
        expect(bytes.length).toBe(file.size);
      }
      const config = JSON.parse((await db.blobs.get(log.tenantId, payload.configFile.digest)).toString()) as object;
      expect(config).toMatchObject({ r: 8, peft_type: 'LORA' });
    }
  });

  it('records a failure that is a function of the operation, and goes on as if it had not been there', async () => {
    const random = new Random(4);
    const wrong: Operation = {
      kind: 'forward_backward',
      loss: { name: 'cross_entropy' },
      datums: [{ ...aDemonstration(random), prompt: int32Tensor([5_000_000]) }],
    };
    const right = supervised(random);
    const adapterId = await log.createAdapter(A_SPEC);
    const last = await log.accept(adapterId, [right, wrong, STEP, CHECKPOINT]);
    await aWorker();
    await log.applied(adapterId, last);
    const [failed] = await log.eventsOfType(adapterId, 'OperationFailed');
    expect(failed?.payload).toMatchObject({ opIndex: '2', code: 'invalid_argument' });
    const twin = await log.createAdapter(A_SPEC);
    await log.applied(twin, await log.accept(twin, [right, STEP, CHECKPOINT]));
    const [[a], [b]] = [
      await log.eventsOfType(adapterId, 'AdapterCheckpointed'),
      await log.eventsOfType(twin, 'AdapterCheckpointed'),
    ];
    expect(a?.payload.weightsDigest).toBe(b?.payload.weightsDigest);
  });

  it('leaves adapters of another base alone', async () => {
    const foreign = new ScriptedLog(db.store, { baseDigest: 'ee'.repeat(32), numericsId: 'f32-1' });
    const theirs = await foreign.createAdapter(A_SPEC);
    await foreign.accept(theirs, [STEP]);
    const ours = await log.createAdapter(A_SPEC);
    const last = await log.accept(ours, [supervised(new Random(5)), STEP]);
    const worker = await aWorker();
    await log.applied(ours, last);
    expect((await db.store.adapterHead(theirs))?.appliedOpIndex).toBe(0n);
    expect(worker.problems()).toEqual([]);
  });
});

describe('a worker that takes over from another', () => {
  it('continues from the newest version to the same bytes', async () => {
    const script = aTrainingScript(6, 6, 2);
    const adapterId = await log.createAdapter(A_SPEC);
    const first = await aWorker();
    await log.applied(adapterId, await log.accept(adapterId, script.slice(0, 10)));
    await first.stop('test');
    workers.length = 0;
    const restore = jest.spyOn(engine, 'restore');
    await log.accept(adapterId, script.slice(10));
    await aWorker();
    await log.applied(adapterId, BigInt(script.length));
    expect(restore).toHaveBeenCalledTimes(1);
    restore.mockRestore();
    expect(await log.digests(adapterId)).toEqual(await derived(adapterId, BigInt(script.length)));
  });

  it('passes over a version file that was damaged', async () => {
    const script = aTrainingScript(7, 4, 1);
    const adapterId = await log.createAdapter(A_SPEC);
    const first = await aWorker();
    await log.applied(adapterId, await log.accept(adapterId, script.slice(0, 12)));
    await first.stop('test');
    workers.length = 0;
    const versions = await log.eventsOfType(adapterId, 'AdapterCheckpointed');
    const path = await db.blobs.pathOf(log.tenantId, versions.at(-1)!.payload.stateFile.digest);
    const bytes = await readFile(path);
    bytes[bytes.length - 5]! ^= 1;
    await writeFile(path, bytes);
    await log.accept(adapterId, script.slice(12));
    await aWorker();
    await log.applied(adapterId, BigInt(script.length));
    expect(await log.digests(adapterId)).toEqual(await derived(adapterId, BigInt(script.length)));
  });

  it('is not disturbed by a lost lease connection: it registers again and folds again', async () => {
    const script = aTrainingScript(8, 8, 4);
    const adapterId = await log.createAdapter(A_SPEC);
    const worker = await aWorker();
    await log.applied(adapterId, await log.accept(adapterId, script.slice(0, 8)));
    await db.pool.query(
      'SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND application_name = $1',
      [`hotbed-leases ${worker.workerId}`],
    );
    await log.applied(adapterId, await log.accept(adapterId, script.slice(8)));
    expect(await log.digests(adapterId)).toEqual(await derived(adapterId, BigInt(script.length)));
  });
});

describe('a worker whose commit fails', () => {
  it.each([
    ['before it was written', false],
    ['after it was written', true],
  ])('%s, drops what is hot and folds again to the same bytes', async (_, isWritten) => {
    const script = aTrainingScript(12, 4, 2);
    const adapterId = await log.createAdapter(A_SPEC);
    const last = await log.accept(adapterId, script);
    const requestId = await log.request({ adapterId, opIndex: 6n }, [[1, 5]]);
    const events = new BreakingStore(db.pool, db.blobs, ['3', '6', '7', '12'], isWritten);
    const drop = jest.spyOn(engine, 'dropAdapter');
    await aWorker({ events });
    await log.applied(adapterId, last);
    await log.answers(requestId, 1);
    expect(events.breaks).toBe(4);
    expect(drop.mock.calls.length).toBeGreaterThanOrEqual(4);
    drop.mockRestore();
    const digests = await log.digests(adapterId);
    expect(digests.map((d) => Number(d.split(' ')[0]))).toEqual(script.map((_op, i) => i + 1));
    expect(digests).toEqual(await derived(adapterId, last));
    const versions = await log.eventsOfType(adapterId, 'AdapterCheckpointed');
    expect(versions.map((v) => v.payload.version)).toEqual([1, 2]);
  });
});

describe('a worker whose adapters do not fit', () => {
  it('lets idle ones go and folds them again when they are needed', async () => {
    const script = aTrainingScript(9, 4, 4);
    const adapters = await Promise.all([1, 2, 3].map((seed) => log.createAdapter({ ...A_SPEC, seed: `${seed}` })));
    await aWorker({ adapterMemoryBytes: 1, policyMemoryBytes: 1 });
    for (const part of [script.slice(0, 6), script.slice(6)]) {
      for (const adapterId of adapters) await log.applied(adapterId, await log.accept(adapterId, part));
      await until(
        () => engine.stats().adapters,
        (count) => count === 0,
        'all idle adapters have left',
      );
    }
    for (const adapterId of adapters) {
      expect(await log.digests(adapterId)).toEqual(await derived(adapterId, BigInt(script.length)));
    }
  });
});

describe('a worker whose engine is busy', () => {
  it('waits and tries again: operations and rollouts end as they would have, none of them failed', async () => {
    const one = { samplingCalls: 1, samplingTokens: 1, trainingRows: 1, trainingMiB: 1 };
    const busy = await openTinyBase({ limits: { total: one, perTenant: one } });
    try {
      const script = aTrainingScript(13, 3, 3);
      const adapters = await Promise.all([1, 2, 3].map((seed) => log.createAdapter({ ...A_SPEC, seed: `${seed}` })));
      workers.push(await startTestWorker(db, busy));
      await Promise.all(adapters.map((adapterId) => log.accept(adapterId, script)));
      const prompts = Array.from({ length: 12 }, (_, i) => [1, 5 + i]);
      const requestId = await log.request(null, prompts);
      for (const adapterId of adapters) await log.applied(adapterId, BigInt(script.length));
      const answers = await log.answers(requestId, prompts.length);
      expect(answers.map((answer) => answer.type)).toEqual(prompts.map(() => 'RolloutsCompleted'));
      expect(busy.stats().busyRefusals).toBeGreaterThan(0);
      for (const adapterId of adapters) {
        expect(await log.eventsOfType(adapterId, 'OperationFailed')).toEqual([]);
        expect(await log.digests(adapterId)).toEqual(await derived(adapterId, BigInt(script.length)));
      }
      const [tenant] = (await busy.tenants()).filter(({ adapters: count }) => count > 0);
      expect(tenant).toMatchObject({ tenant: log.tenantId, adapters: 3 });
    } finally {
      for (const worker of workers.splice(0)) await worker.stop('test');
      await busy.dispose();
    }
  });
});

describe('a worker whose idle adapters wait in snapshots', () => {
  it('brings them back for the next operation, without folding, to the bytes that the log derives', async () => {
    const folder = await mkdtemp(join(tmpdir(), 'hotbed-idle-'));
    const evicting = await EvictingEngine.over(await openTinyBase(), { adapterMemoryBytes: 1, folder });
    try {
      const script = aTrainingScript(14, 4, 9);
      const adapterId = await log.createAdapter(A_SPEC);
      workers.push(await startTestWorker(db, evicting, { adapterMemoryBytes: 1, policyMemoryBytes: 1 }));
      for (const part of [script.slice(0, 4), script.slice(4)]) {
        await log.applied(adapterId, await log.accept(adapterId, part));
        await until(
          () => evicting.stats().adapters,
          (count) => count === 0,
          'the idle adapter has left',
        );
      }
      expect(evicting.evictionStats().restores).toBeGreaterThan(0);
      expect(await log.digests(adapterId)).toEqual(await derived(adapterId, BigInt(script.length)));
    } finally {
      for (const worker of workers.splice(0)) await worker.stop('test');
      await evicting.dispose();
      await rm(folder, { recursive: true });
    }
  });
});

describe('a worker on a full disk', () => {
  it('says so, keeps the adapter, and writes the version once there is room', async () => {
    const blobs = new FillingStore({ root: db.blobFolder });
    const adapterId = await log.createAdapter(A_SPEC);
    const worker = await aWorker({ blobs });
    const last = await log.accept(adapterId, aTrainingScript(10, 2, 2));
    const [problem] = await until(
      () => worker.problems(),
      (problems) => problems.length > 0,
      'an alarm',
    );
    expect(problem).toContain('version cannot be written: the disk of the blob store is full');
    await log.applied(adapterId, last - 1n);
    expect((await db.store.adapterHead(adapterId))?.appliedOpIndex).toBe(last - 1n);
    blobs.full = false;
    await log.applied(adapterId, last);
    expect(await log.digests(adapterId)).toEqual(await derived(adapterId, last));
    expect(worker.problems()).toEqual([]);
  });
});

describe('a worker with rollout requests', () => {
  const PROMPTS = [
    [1, 5, 6],
    [1, 7],
    [1, 8, 9, 10],
  ];

  it('answers each prompt with what the engine samples from the pinned state, seed by seed', async () => {
    const adapterId = await log.createAdapter(A_SPEC);
    const last = await log.accept(adapterId, aTrainingScript(20, 2, 2));
    const requestId = await log.request({ adapterId, opIndex: last }, PROMPTS, 3);
    await aWorker();
    const answers = ofType(await log.answers(requestId, 3), 'RolloutsCompleted');
    const folded = await foldAdapter({ engine, events: db.store, adapterId, upToOpIndex: last, from: null });
    const policy = await engine.pin(folded.adapter);
    for (const { payload } of answers) {
      const seeds = [0, 1, 2].map((s) => `${100 * (payload.promptIndex + 1) + s}`);
      const prompt = Int32Array.from(PROMPTS[payload.promptIndex]!);
      const expected = await engine.sample({ policy, prompt, seeds, params: SAMPLING, promptLogprobs: false });
      expect(payload.rollouts.map((r) => [...toInt32Array(r.tokens)])).toEqual(
        expected.sequences.map((s) => [...s.tokens]),
      );
      expect(payload.rollouts.map((r) => toFloat32Array(r.policyLogprobs))).toEqual(
        expected.sequences.map((s) => s.policyLogprobs),
      );
    }
    engine.release(policy);
    await engine.dropAdapter(folded.adapter);
  });

  it('answers for a state that is not applied yet only after its operation is committed', async () => {
    const script = aTrainingScript(21, 2, 2);
    const adapterId = await log.createAdapter(A_SPEC);
    const requestId = await log.request({ adapterId, opIndex: BigInt(script.length) }, PROMPTS);
    await aWorker();
    await log.accept(adapterId, script);
    const answers = await log.answers(requestId, 3);
    const outcomes = await log.eventsOf(adapterId);
    const committed = outcomes.find((e) => e.type === 'OperationApplied' && e.payload.opIndex === `${script.length}`);
    for (const answer of answers) expect(answer.globalPosition).toBeGreaterThan(committed!.globalPosition);
  });

  it('never replaces an old state by a newer one: derived again, it gives the same tokens', async () => {
    const script = aTrainingScript(22, 6, 3);
    const adapterId = await log.createAdapter(A_SPEC);
    await aWorker({ policyMemoryBytes: 1 });
    await log.applied(adapterId, await log.accept(adapterId, script.slice(0, 6)));
    const early = await log.answers(await log.request({ adapterId, opIndex: 6n }, PROMPTS), 3);
    await log.applied(adapterId, await log.accept(adapterId, script.slice(6)));
    const newest = await log.answers(await log.request({ adapterId, opIndex: BigInt(script.length) }, PROMPTS), 3);
    const late = await log.answers(await log.request({ adapterId, opIndex: 6n }, PROMPTS), 3);
    expect(contentOf(late)).toEqual(contentOf(early));
    expect(contentOf(newest)).not.toEqual(contentOf(early));
  });

  it('answers for the plain base', async () => {
    const requestId = await log.request(null, PROMPTS);
    await aWorker();
    const answers = ofType(await log.answers(requestId, 3), 'RolloutsCompleted');
    expect(answers.map((a) => a.payload.adapterId)).toEqual([null, null, null]);
  });

  it('of either contract answers for the plain base and its adapters under its own, side by side', async () => {
    const folder = join(TINY_BASE, '..', 'llama-tied-bf16');
    const settings = { modelFolder: folder, kernels: 'avx2' as const };
    const engines = [await openTinyBase(settings), await openTinyBase({ ...settings, numerics: 'bf16-1' })];
    const prompts = [[1, 5, 9]];
    const answers: string[] = [];
    for (const of of engines) workers.push(await startTestWorker(db, of));
    for (const of of engines) {
      const theirs = new ScriptedLog(db.store, of.info());
      const untrained = { adapterId: await theirs.createAdapter(A_SPEC), opIndex: 0n };
      const requests = [await theirs.request(null, prompts), await theirs.request(untrained, prompts)];
      for (const id of requests) answers.push(JSON.stringify(contentOf(await theirs.answers(id, 1))));
    }
    const [wide, pairs] = [answers[0], answers[2]];
    expect(answers).toEqual([wide, wide, pairs, pairs]);
    expect(wide).not.toBe(pairs);
    for (const worker of workers.splice(0)) await worker.stop('test');
    for (const of of engines) await of.dispose();
  });

  it('refuses the prompt that can never be answered, and answers the others', async () => {
    const adapterId = await log.createAdapter(A_SPEC);
    const tooLong = Array.from({ length: 500 }, () => 5);
    const requestId = await log.request({ adapterId, opIndex: 0n }, [[1, 5], [1, 1_000_000], tooLong]);
    await aWorker();
    const answers = await log.answers(requestId, 3);
    const failed = ofType(answers, 'RolloutsFailed').map((e) => [e.payload.promptIndex, e.payload.code]);
    expect(failed.sort()).toEqual([
      [1, 'invalid_argument'],
      [2, 'invalid_argument'],
    ]);
    expect(ofType(answers, 'RolloutsCompleted').map((e) => e.payload.promptIndex)).toEqual([0]);
  });

  it('stops at strings where its folder has a tokenizer, and refuses only that where it has none', async () => {
    const sampling = { ...SAMPLING, stopTokenIds: [], maxTokens: 30, stopStrings: ['a', 'bc'] };
    const refused = await log.request(null, PROMPTS, 4, sampling);
    const worker = await aWorker();
    const failed = ofType(await log.answers(refused, 3), 'RolloutsFailed');
    expect(failed.map((e) => e.payload.code)).toEqual(Array.from({ length: 3 }, () => 'model_folder_invalid'));
    expect(await log.answers(await log.request(null, PROMPTS), 3)).toHaveLength(3);
    await worker.stop('test');

    // The seedling's ids mean letters; which base draws them does not matter here.
    await aWorker({ modelFolder: SEEDLING });
    const answers = ofType(await log.answers(await log.request(null, PROMPTS, 4, sampling), 3), 'RolloutsCompleted');
    const { tokenizer } = await openModelFolder(SEEDLING);
    const rollouts = answers.flatMap((e) => e.payload.rollouts);
    for (const { tokens, stopReason } of rollouts) {
      const ids = toInt32Array(tokens);
      const [text, before] = [tokenizer.decode(ids), tokenizer.decode(ids.slice(0, -1))];
      expect(/a|bc/.test(text)).toBe(stopReason === 'stop');
      expect(before).not.toMatch(/a|bc/);
    }
    expect(new Set(rollouts.map((rollout) => rollout.stopReason))).toContain('stop');
  });

  it('refuses a request from an adapter that this engine cannot make', async () => {
    const refusal = new EngineFault('invalid_argument', 'targets: lm_head is unknown to an older engine');
    const refusing = jest.spyOn(engine, 'createAdapter').mockRejectedValue(refusal);
    const adapterId = await log.createAdapter({ ...A_SPEC, targets: ['lm_head'] });
    const requestId = await log.request({ adapterId, opIndex: 0n }, PROMPTS);
    const worker = await aWorker();
    const failed = ofType(await log.answers(requestId, 3), 'RolloutsFailed');
    expect(failed[0]?.payload).toMatchObject({ code: 'invalid_argument' });
    await log.accept(adapterId, [CHECKPOINT]);
    const [problem] = await until(
      () => worker.problems(),
      (problems) => problems.length > 0,
      'an alarm',
    );
    expect(problem).toContain('lm_head');
    refusing.mockRestore();
  });

  it('answers each prompt once, however many workers there are', async () => {
    const adapterId = await log.createAdapter(A_SPEC);
    await Promise.all([aWorker(), aWorker(), aWorker()]);
    const requests = await Promise.all(
      Array.from({ length: 10 }, () => log.request({ adapterId, opIndex: 0n }, PROMPTS)),
    );
    for (const requestId of requests) expect(await log.answers(requestId, 3)).toHaveLength(3);
    const holders = new Set<string>();
    for (const worker of workers) {
      const events = await db.store.readStream(`worker:${worker.workerId}`);
      if (ofType(events, 'LeaseClaimed').some((e) => e.payload.resource === `adapter:${adapterId}`)) {
        holders.add(worker.workerId);
      }
    }
    expect(holders.size).toBe(1);
  });
});

describe('the life of a worker', () => {
  it('stands in its own stream', async () => {
    const worker = await aWorker();
    const adapterId = await log.createAdapter(A_SPEC);
    await log.applied(adapterId, await log.accept(adapterId, [CHECKPOINT]));
    await worker.stop('shutdown');
    workers.length = 0;
    const events = await db.store.readStream(`worker:${worker.workerId}`);
    const types = events.map((e) => e.type);
    expect(types.slice(0, 2)).toEqual(['WorkerStarted', 'BaseModelLoaded']);
    expect(types.at(-1)).toBe('WorkerStopped');
    const claims = ofType(events, 'LeaseClaimed').map((e) => e.payload.resource);
    expect(claims).toContain(`adapter:${adapterId}`);
    expect(ofType(events, 'BaseModelLoaded')[0]?.payload).toMatchObject({
      baseDigest: engine.info().baseDigest,
      name: 'llama-gqa-f32',
    });
  });
});

/** Loses the database once at each of some operations: before the commit, or between the commit and its answer. */
class BreakingStore extends PgEventStore {
  breaks = 0;
  private readonly broken = new Set<string>();

  constructor(
    pool: ConstructorParameters<typeof PgEventStore>[0],
    blobs: FileBlobStore,
    private readonly breakAt: readonly string[],
    private readonly isWritten: boolean,
  ) {
    super(pool, blobs);
  }

  override async append(item: AppendItem): Promise<AppendResult> {
    const outcome = item.writes[0]?.events.find((event) => event.type === 'OperationApplied');
    const opIndex = outcome?.type === 'OperationApplied' ? outcome.payload.opIndex : '';
    if (!this.breakAt.includes(opIndex) || this.broken.has(opIndex)) return super.append(item);
    this.broken.add(opIndex);
    if (this.isWritten) await super.append(item);
    this.breaks++;
    throw new Unavailable('database_unavailable', 'the connection was lost');
  }
}

/** Refuses files as a full disk does, until there is room. */
class FillingStore extends FileBlobStore {
  full = true;

  override adopt(tenantId: string, path: string, mediaType: string): Promise<BlobRef> {
    if (!this.full) return super.adopt(tenantId, path, mediaType);
    return Promise.reject(new Unavailable('blob_store_full', 'the disk of the blob store is full; free some space'));
  }
}

/** What was sampled, by prompt. */
function contentOf(events: Awaited<ReturnType<ScriptedLog['answers']>>): unknown {
  return ofType(events, 'RolloutsCompleted')
    .sort((a, b) => a.payload.promptIndex - b.payload.promptIndex)
    .map((e) => e.payload.rollouts.map((r) => [r.tokens.base64, r.policyLogprobs.base64, r.samplingLogprobs.base64]));
}
