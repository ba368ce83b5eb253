/** The life of a worker's process: paused past its lease, asked to end, started on a base that cannot be loaded. */
import { cpSync, mkdtempSync, rmSync, truncateSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { Engine } from '#hotbed/engine';
import { withTestDatabase } from '#hotbed/event-store/testing';
import { foldAdapter } from '#hotbed/fold';
import { A_SPEC, TINY_BASE, aTrainingScript, openTinyBase } from '#hotbed/fold/testing';
import { ScriptedLog, ofType, until } from '../../apps/gpu-worker/src/testing/scripted-log';
import { WorkerProcess } from './support/worker-process';

jest.setTimeout(120_000);

const db = withTestDatabase();
let engine: Engine;
let log: ScriptedLog;
const processes: WorkerProcess[] = [];

beforeAll(async () => {
  engine = await openTinyBase();
});
beforeEach(() => {
  log = new ScriptedLog(db.store, engine.info());
});
afterEach(async () => {
  for (const worker of processes.splice(0)) {
    worker.kill('SIGKILL');
    await worker.exited;
  }
});
afterAll(() => engine.dispose());

function aWorker(variables: Record<string, string> = {}): WorkerProcess {
  const worker = WorkerProcess.start(db, variables);
  processes.push(worker);
  return worker;
}

async function derived(adapterId: string, upTo: bigint): Promise<string[]> {
  const folded = await foldAdapter({ engine, events: db.store, adapterId, upToOpIndex: upTo, from: null });
  await engine.dropAdapter(folded.adapter);
  return folded.digests.map((d) => `${d.opIndex} ${d.result.stateDigest}`);
}

describe('a worker that is paused past its lease', () => {
  it('is refused when it wakes up, and its successor has lost nothing', async () => {
    const script = aTrainingScript(31, 30, 5, { groups: 2, branches: 4, tokens: 16 });
    const adapterId = await log.createAdapter(A_SPEC);
    await log.accept(adapterId, script);
    const paused = aWorker({ HOTBED_LEASE_TTL_MS: '1000', HOTBED_WORKER_NAME: 'paused' });
    await log.applied(adapterId, 3n);
    paused.kill('SIGSTOP');
    const at = (await db.store.adapterHead(adapterId))!.appliedOpIndex;
    expect(at).toBeLessThan(BigInt(script.length));

    const successor = aWorker({ HOTBED_LEASE_TTL_MS: '1000', HOTBED_WORKER_NAME: 'successor' });
    await log.applied(adapterId, BigInt(script.length), 60_000);
    paused.kill('SIGCONT');
    await until(
      () => paused.log.some((line) => line['msg'] === 'lease lost'),
      (lost) => lost,
      'the paused worker hears that its lease is gone',
    );
    const last = await log.accept(adapterId, aTrainingScript(32, 3, 3));
    await log.applied(adapterId, last);

    const outcomes = ofType(await log.eventsOf(adapterId), 'OperationApplied').map((e) => e.payload);
    const epochs = outcomes.map((o) => Number(o.leaseEpoch));
    expect([...epochs].sort((a, b) => a - b)).toEqual(epochs);
    expect(new Set(outcomes.map((o) => `${o.workerId} ${o.leaseEpoch}`)).size).toBe(2);
    expect(await log.digests(adapterId)).toEqual(await derived(adapterId, last));
    for (const worker of [paused, successor]) worker.kill('SIGTERM');
    expect(await Promise.all([paused.exited, successor.exited])).toEqual([
      { code: 0, signal: null },
      { code: 0, signal: null },
    ]);
  });
});

describe('a worker that is asked to end', () => {
  it('ends with 0 in the middle of its work, gives its leases back, and says so in the log', async () => {
    const script = aTrainingScript(33, 30, 5, { groups: 2, branches: 4, tokens: 16 });
    const adapterId = await log.createAdapter(A_SPEC);
    await log.accept(adapterId, script);
    const first = aWorker();
    await log.applied(adapterId, 3n);
    first.kill('SIGTERM');
    expect(await first.exited).toEqual({ code: 0, signal: null });
    const [row] = (await db.pool.query('SELECT owner FROM es.lease WHERE resource = $1', [`adapter:${adapterId}`]))
      .rows;
    expect(row).toEqual({ owner: null });
    const outcomes = ofType(await log.eventsOf(adapterId), 'OperationApplied');
    const life = await db.store.readStream(`worker:${outcomes[0]!.payload.workerId}`);
    expect(life.at(-1)).toMatchObject({ type: 'WorkerStopped', payload: { reason: 'shutdown' } });

    aWorker();
    await log.applied(adapterId, BigInt(script.length), 60_000);
    expect(await log.digests(adapterId)).toEqual(await derived(adapterId, BigInt(script.length)));
  });
});

describe('a worker whose base cannot be loaded', () => {
  let folder: string;
  beforeEach(() => {
    folder = mkdtempSync(join(tmpdir(), 'hotbed-base-'));
    for (const file of ['config.json', 'model.safetensors']) cpSync(join(TINY_BASE, file), join(folder, file));
  });
  afterEach(() => rmSync(folder, { recursive: true, force: true }));

  const damages: [string, () => void, RegExp][] = [
    ['is missing', () => rmSync(folder, { recursive: true }), /does not exist/],
    ['is truncated', () => truncateSync(join(folder, 'model.safetensors'), 5000), /model\.safetensors/],
    [
      'is of another architecture',
      () =>
        writeFileSync(
          join(folder, 'config.json'),
          JSON.stringify({ architectures: ['MambaForCausalLM'], model_type: 'mamba' }),
        ),
      /mamba/i,
    ],
  ];
  it.each(damages)('says in one line that it %s, and ends with 1', async (_, damage, line) => {
    damage();
    const worker = aWorker({ HOTBED_BASE_MODEL: folder });
    expect(await worker.exited).toEqual({ code: 1, signal: null });
    expect(worker.stderr.trimEnd().split('\n')).toEqual([expect.stringMatching(line)]);
  });
});
