/**
 * A8 on the whole platform: what was acknowledged survives the sudden end of any process, training goes on where it
 * was, and the log proves that nothing was changed.
 */
import pg from 'pg';
import type { ExperimentView } from '#hotbed/contracts';
import { eventually } from '../support/eventually';
import { RunningPlatform } from '../support/running-platform';
import { RECORDS, aSmallExperiment, untilExperiment, untilTrained } from '../support/small-training';

jest.setTimeout(300_000);

const STEPS = 40;
/** Long enough that a run is still under way when the end comes, short leases so that recovery is soon. */
const VARIABLES = { HOTBED_LEASE_TTL_MS: '1000' };
const STOP_DEADLINE_MS = 45_000;

let platform: RunningPlatform;

beforeAll(async () => {
  platform = await RunningPlatform.start(VARIABLES);
  await platform.door().made('POST', '/v1/streams', { name: 'words' });
  await platform.door().made('POST', '/v1/streams/words/records', { records: RECORDS });
});
afterAll(() => platform?.remove());

async function startTraining(name: string): Promise<void> {
  const trigger = { kind: 'count', records: RECORDS.length };
  await platform
    .door()
    .made('POST', '/v1/experiments', aSmallExperiment({ name, steps: STEPS, trigger, checkpointEverySteps: 5 }));
  await untilExperiment(platform.door(), name, 'is in the middle of its run', (view) => view.steps.length >= 7);
}

async function verify(...args: string[]): Promise<{ code: number | null; said: Record<string, unknown> }> {
  const { code, stdout, stderr } = await platform.hotbed(['--json', 'audit', 'verify', ...args]);
  if (stdout === '') throw new Error(stderr);
  return { code, said: JSON.parse(stdout) as Record<string, unknown> };
}

async function headNow(): Promise<string> {
  const { head } = await platform.door().made('GET', '/v1/audit/head');
  return `${head.position}:${head.hash}`;
}

/** Every step once and in order; a version at each checkpoint and at the end; no record twice. */
async function expectWhole(view: ExperimentView): Promise<string> {
  expect(view.steps.map((step) => step.step)).toEqual(Array.from({ length: STEPS }, (_, i) => i));
  const { versions } = await platform.door().made('GET', `/v1/adapters/${view.adapterName}/versions`);
  expect(versions.map((v: { version: number }) => v.version)).toEqual(versions.map((_: unknown, i: number) => i + 1));
  const { records } = await platform.door().made('GET', '/v1/streams/words');
  expect(records).toBe(RECORDS.length);
  return versions.at(-1).stateDigest as string;
}

describe('a platform whose processes end suddenly in mid-training', () => {
  const digests: string[] = [];

  it('trains to the end when its worker is killed, and the log only grew', async () => {
    await startTraining('worker-killed');
    const head = await headNow();
    const killed = platform.workerPid!;
    const killedAtMs = Date.now();
    process.kill(killed, 'SIGKILL');
    const view = await untilTrained(platform.door(), 'worker-killed');
    expect(view.steps.at(-1)!.completedAtMs).toBeGreaterThan(killedAtMs);
    expect(platform.workerPid).not.toBe(killed);
    digests.push(await expectWhole(view));
    expect(await verify('--expect-head', head)).toMatchObject({ code: 0, said: { ok: true } });
  });

  it.each(['nats', 'postgres'] as const)('trains to the end when its %s server is killed', async (service) => {
    await startTraining(`${service}-killed`);
    const head = await headNow();
    const killed = platform.servicePid(service)!;
    process.kill(killed, 'SIGKILL');
    const view = await untilTrained(platform.door(), `${service}-killed`);
    expect(platform.servicePid(service)).not.toBe(killed);
    expect(await expectWhole(view)).toBe(digests[0]);
    expect(await verify('--expect-head', head)).toMatchObject({ code: 0, said: { ok: true } });
  });

  it('goes on where it was when all of it is killed and started again on the same folder', async () => {
    await startTraining('all-killed');
    const head = await headNow();
    const key = platform.adminKey;
    const killedAtMs = Date.now();
    expect(await platform.kill()).toEqual({ code: null, signal: 'SIGKILL' });

    platform = await RunningPlatform.start(VARIABLES, platform.dataDir);
    expect(platform.adminKey).toBe(key);
    const view = await untilTrained(platform.door(), 'all-killed');
    expect(view.steps.at(-1)!.completedAtMs).toBeGreaterThan(killedAtMs);
    digests.push(await expectWhole(view));
    expect(await verify('--expect-head', head)).toMatchObject({ code: 0, said: { ok: true } });
    // The same configuration, seeds and records: whatever was killed when, the last state has the same bits.
    expect(digests[1]).toBe(digests[0]);
  });

  it('ends in order when it is asked to in the middle of a run, and leaves no process behind', async () => {
    await startTraining('stopped');
    const head = await headNow();
    const worker = platform.workerPid!;
    const { port } = new URL(platform.databaseUrl);
    const stoppedAtMs = Date.now();
    let timer: NodeJS.Timeout | undefined;
    const late = new Promise<string>((resolve) => (timer = setTimeout(() => resolve('late'), STOP_DEADLINE_MS)));
    expect(await Promise.race([platform.stop(), late])).toEqual({ code: 0, signal: null });
    clearTimeout(timer);
    expect(isAlive(worker)).toBe(false);
    await expect(fetch(platform.announced.url)).rejects.toThrow();
    await expect(fetch(`http://127.0.0.1:${port}`)).rejects.toThrow();

    platform = await RunningPlatform.start(VARIABLES, platform.dataDir);
    const view = await untilTrained(platform.door(), 'stopped');
    expect(view.steps.at(-1)!.completedAtMs).toBeGreaterThan(stoppedAtMs);
    expect(await expectWhole(view)).toBe(digests[0]);
    expect(await verify('--expect-head', head)).toMatchObject({ code: 0, said: { ok: true } });
  });
});

describe('an auditor with a head that was seen', () => {
  async function asSuperuser<T>(work: (client: pg.Client) => Promise<T>): Promise<T> {
    const client = new pg.Client({ connectionString: platform.superuserUrl });
    await client.connect();
    try {
      return await work(client);
    } finally {
      await client.end();
    }
  }

  it('is told which event has a changed byte, whoever changed it', async () => {
    const position = 9;
    const flip = () =>
      asSuperuser(async (client) => {
        const change = `UPDATE es.events SET payload_bytes = set_byte(payload_bytes, 3, get_byte(payload_bytes, 3) # 1)
          WHERE global_position = ${position}`;
        await expect(client.query(change)).rejects.toThrow('append-only');
        await client.query('ALTER TABLE es.events DISABLE TRIGGER USER');
        await client.query(change);
        await client.query('ALTER TABLE es.events ENABLE TRIGGER USER');
      });
    await flip();
    const changed = await verify();
    expect(changed).toEqual({
      code: 1,
      said: { ok: false, kind: 'changed', position: `${position}`, message: expect.any(String) },
    });
    await flip();
    expect(await verify()).toMatchObject({ code: 0 });
  });

  it('is told that the tail was cut, even where the head was moved back to fit', async () => {
    // Nothing may be appended between the cut and the look.
    const head = await eventually('the log is quiet', async () => {
      const before = await headNow();
      const running = await platform.door().made('GET', '/v1/experiments');
      return running.experiments.every((e: { state: string }) => e.state !== 'training') && before;
    });
    await asSuperuser(async (client) => {
      await client.query('BEGIN');
      await client.query('ALTER TABLE es.events DISABLE TRIGGER USER');
      await client.query('DELETE FROM es.events WHERE global_position > (SELECT position - 3 FROM es.log_head)');
      await client.query(
        `UPDATE es.log_head SET (position, hash) =
          (SELECT global_position, event_hash FROM es.events ORDER BY global_position DESC LIMIT 1)`,
      );
      await client.query('ALTER TABLE es.events ENABLE TRIGGER USER');
      await client.query('COMMIT');
    });
    // In itself the shorter log is whole; only who remembers a head can tell.
    expect(await verify()).toMatchObject({ code: 0 });
    expect(await verify('--expect-head', head)).toEqual({
      code: 1,
      said: { ok: false, kind: 'cut_tail', position: expect.any(String), message: expect.stringContaining('cut') },
    });
  });
});

function isAlive(pid: number): boolean {
  try {
    process.kill(pid, 0);
    return true;
  } catch {
    return false;
  }
}
