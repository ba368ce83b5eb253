import { readFileSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import pg from 'pg';
import { newId, streamId } from '#hotbed/contracts';
import { aRecordReceived, aStreamOfRecords, withTestDatabase } from '#hotbed/event-store/testing';
import { blobFolder } from './blob-folder';
import type { SeenHead } from './log-row';
import { verifyDatabase, verifySnapshot } from './verify-database';

const tenant = newId();

describe('buzz#2637, temple-stuart#499: the chain verifies whatever was written', () => {
  const db = withTestDatabase();

  it('verifies nested objects, unicode, -0, 1e21 and tiny numbers', async () => {
    const stream = streamId('experiment', newId());
    const numbers = [-0, 0, 1e21, 1e-7, 5e-324, 1.7976931348623157e308, 0.1, 123456789012345680000, 1 / 3];
    const texts = [
      '',
      'zwölf',
      '日本語',
      '🌱',
      '\u2028\u2029',
      'a"\\/\b\f\n\r\t\u0001\u007f',
      'é',
      'e\u0301',
      '\ufeff',
    ];
    const config = {
      ä: { z: numbers, a: [[{ b: [], a: {} }]] },
      A: texts,
      '€': null,
      '\u{1f600}': true,
      '\ufb33': false,
      '': Object.fromEntries(texts.map((text, i) => [text, numbers[i] ?? null])),
    };
    const experiment = anExperimentRewardedBy(config);
    await db.store.append({ writes: [{ streamId: stream, expected: 'none', events: [experiment] }] });
    const [stored] = await db.store.readStream(stream);
    // RFC 8785 writes -0 as 0; everything else comes back as it was.
    const written = structuredClone(config);
    written['ä'].z = written['ä'].z.map((n) => (Object.is(n, -0) ? 0 : n));
    written[''][''] = 0;
    expect(stored!.payload).toMatchObject({ reward: { config: written } });
    expect(await verifyDatabase(db.url)).toEqual({ ok: true, head: await db.store.head() });
  });

  it('verifies many concurrent groups to 100 %', async () => {
    const streams = Array.from({ length: 10 }, () => newId());
    await Promise.all(
      Array.from({ length: 300 }, (_, i) => db.store.append(aStreamOfRecords(tenant, streams[i % 10]!, 1 + (i % 3)))),
    );
    const head = await db.store.head();
    expect(await verifyDatabase(db.url)).toEqual({ ok: true, head });
    expect(await verifyDatabase(db.url, { expectHead: head })).toMatchObject({ ok: true });
  });

  it('checks payloads in the blob store, and names one that was changed or is missing', async () => {
    const stream = newId();
    const metadata = Object.fromEntries(Array.from({ length: 300 }, (_, i) => [`field-${i}`, 'v'.repeat(1024)]));
    const events = [aRecordReceived(tenant, stream, { metadata })];
    await db.store.append({ writes: [{ streamId: streamId('data-stream', stream), expected: 'any', events }] });
    const { position } = await db.store.head();
    const verify = () => verifyDatabase(db.url, { readBlob: blobFolder(db.blobFolder) });
    expect(await verify()).toMatchObject({ ok: true });
    const [file] = readdirSync(db.blobFolder, { recursive: true, encoding: 'utf8' }).filter((f) =>
      /[0-9a-f]{64}$/.test(f),
    );
    const path = join(db.blobFolder, file!);
    const bytes = readFileSync(path);
    writeFileSync(path, bytes.toString().replace('v', 'w'));
    expect(await verify()).toMatchObject({ problem: { kind: 'changed', position } });
    rmSync(path);
    expect(await verify()).toMatchObject({ problem: { kind: 'deleted', position } });
    writeFileSync(path, bytes);
  });

  it('refuses times that are no whole milliseconds, before anything is written', async () => {
    const before = await db.store.head();
    const stream = newId();
    const event = aRecordReceived(tenant, stream, {}, { occurredAtMs: 1_764_547_200_000.25 });
    await expect(
      db.store.append({ writes: [{ streamId: streamId('data-stream', stream), expected: 'any', events: [event] }] }),
    ).rejects.toMatchObject({ kind: 'InvalidInput', fields: [{ path: 'occurredAtMs' }] });
    expect(await db.store.head()).toEqual(before);
  });
});

/** Each test edits the log as an administrator would, past the triggers, and rolls back. */
describe('an edited log', () => {
  let admin: pg.Client;
  afterAll(() => admin.end());
  const db = withTestDatabase();
  let head: SeenHead;

  beforeAll(async () => {
    const streams = [newId(), newId()];
    for (let i = 0; i < 10; i++) await db.store.append(aStreamOfRecords(tenant, streams[i % 2]!));
    head = await db.store.head();
    admin = new pg.Client({ connectionString: db.adminUrl });
    await admin.connect();
  });
  beforeEach(async () => {
    await admin.query('BEGIN');
    await admin.query('SET LOCAL session_replication_role = replica');
  });
  afterEach(() => admin.query('ROLLBACK'));

  const edit = async (...statements: string[]): Promise<void> => {
    for (const statement of statements) await admin.query(statement);
  };
  const foundBy = (expectHead?: SeenHead) => verifySnapshot(admin, expectHead ? { expectHead } : {});

  it.each([
    ['a payload byte', `payload_bytes = set_byte(payload_bytes, 20, 65)`],
    ['a header byte', `header_bytes = set_byte(header_bytes, 20, 65)`],
    ['the recorded time', `recorded_at_ms = recorded_at_ms + 1`],
    ['the stream version', `stream_version = 77`],
    ['the event hash', `event_hash = set_byte(event_hash, 0, (get_byte(event_hash, 0) + 1) % 256)`],
    ['the payload hash', `payload_hash = set_byte(payload_hash, 0, (get_byte(payload_hash, 0) + 1) % 256)`],
    ['the query copy', `data = jsonb_set(data, '{content,answer}', '"dog"')`],
    ['the actor column', `actor = 'somebody else'`],
    ['the tenant column', `tenant_id = '00000000-0000-0000-0000-000000000009'`],
    ['the occurred column', `occurred_at_ms = occurred_at_ms - 1`],
    ['the causation column', `causation_id = 'x'`],
  ])('names a row with %s changed', async (_, change) => {
    await edit(`UPDATE es.events SET ${change} WHERE global_position = 4`);
    expect(await foundBy()).toMatchObject({ ok: false, problem: { kind: 'changed', position: 4n } });
  });

  it('names a changed row whose own hashes were recomputed', async () => {
    await edit(
      `UPDATE es.events SET payload_bytes = convert_to(replace(convert_from(payload_bytes, 'UTF8'), '"tac"', '"dog"'), 'UTF8'),
         data = jsonb_set(data, '{content,answer}', '"dog"') WHERE global_position = 4`,
      `UPDATE es.events SET payload_hash = sha256(payload_bytes), event_hash = sha256('\\x686f746265642e6576656e742e3100'::bytea
         || int8send(global_position) || int8send(stream_version) || int8send(recorded_at_ms) || prev_hash
         || sha256(header_bytes) || sha256(payload_bytes)) WHERE global_position = 4`,
    );
    expect(await foundBy()).toMatchObject({ ok: false, problem: { kind: 'rewritten', position: 5n } });
  });

  it('names a deleted row, with and without renumbering', async () => {
    await edit(`DELETE FROM es.events WHERE global_position = 5`);
    expect(await foundBy()).toMatchObject({ ok: false, problem: { kind: 'deleted', position: 5n } });
    await edit(
      ...[6, 7, 8, 9, 10].map((p) => `UPDATE es.events SET global_position = ${p - 1} WHERE global_position = ${p}`),
    );
    expect(await foundBy()).toMatchObject({ ok: false, problem: { kind: 'deleted', position: 5n } });
  });

  it('names swapped rows', async () => {
    await edit(
      `UPDATE es.events SET global_position = 1000 WHERE global_position = 3`,
      `UPDATE es.events SET global_position = 3 WHERE global_position = 7`,
      `UPDATE es.events SET global_position = 7 WHERE global_position = 1000`,
    );
    expect(await foundBy()).toMatchObject({ ok: false, problem: { kind: 'swapped', position: 3n } });
  });

  const insertCopy = (position: number): string =>
    `INSERT INTO es.events SELECT ${position}, gen_random_uuid(), stream_id, stream_version + 100, category, type,
       schema_version, tenant_id, occurred_at_ms, recorded_at_ms, actor, correlation_id, causation_id, header_bytes,
       payload_bytes, data, payload_hash, prev_hash, event_hash FROM es.events WHERE global_position = 2`;

  it('names an inserted row, in the middle and at the end', async () => {
    await edit(insertCopy(11));
    expect(await foundBy()).toMatchObject({ ok: false, problem: { position: 11n } });
    await edit(
      `DELETE FROM es.events WHERE global_position = 11`,
      ...[10, 9, 8, 7, 6].map((p) => `UPDATE es.events SET global_position = ${p + 1} WHERE global_position = ${p}`),
      insertCopy(6),
    );
    expect(await foundBy()).toMatchObject({ ok: false, problem: { kind: 'inserted', position: 6n } });
  });

  it("names a cut tail against the log's own head, and against a seen one when that was cut too", async () => {
    await edit(`DELETE FROM es.events WHERE global_position > 7`);
    expect(await foundBy()).toMatchObject({ ok: false, problem: { kind: 'cut_tail', position: 8n } });
    await edit(
      `UPDATE es.log_head SET position = 7, hash = (SELECT event_hash FROM es.events WHERE global_position = 7)`,
    );
    expect(await foundBy()).toMatchObject({ ok: true });
    expect(await foundBy(head)).toMatchObject({ ok: false, problem: { kind: 'cut_tail', position: 8n } });
  });

  it('names a log that does not contain the head that was seen', async () => {
    expect(await foundBy({ position: 6n, hash: 'ab'.repeat(32) })).toMatchObject({
      ok: false,
      problem: { kind: 'rewritten', position: 6n },
    });
  });
});

function anExperimentRewardedBy(config: Record<string, unknown>) {
  return {
    ...aRecordReceived(tenant, newId()),
    type: 'ExperimentCreated',
    payload: {
      experimentId: newId(),
      name: 'nested',
      adapterId: newId(),
      adapterName: 'nested',
      dataStreamId: newId(),
      baseDigest: '0'.repeat(64),
      numericsId: 'f32-1',
      adapterSpec: { rank: 8, alpha: 16, rslora: false, targets: ['q', 'v'], seed: '18446744073709551615' },
      algorithm: {
        kind: 'grpo',
        stepsPerRun: 1,
        promptsPerStep: 1,
        samplesPerPrompt: 2,
        loss: { name: 'importance_sampling' },
        adam: { learningRate: 1e-4, beta1: 0.9, beta2: 0.999, eps: 1e-8, weightDecay: 0, gradClipNorm: 0 },
        schedule: { kind: 'constant' },
        sampling: { temperature: 1, topK: 0, topP: 1, maxTokens: 8, stopTokenIds: [] },
      },
      reward: { verifier: 'exact-match', config },
      trigger: { kind: 'manual' },
      checkpointEverySteps: 1,
      seed: '7',
    },
  } as never;
}
