import { createHash } from 'node:crypto';
import { Registry } from 'prom-client';
import {
  COMMANDS,
  DomainError,
  newId,
  streamId,
  SYSTEM_TENANT_ID,
  type CommandInput,
  type CommandName,
  type CommandReply,
} from '#hotbed/contracts';
import { withTestDatabase } from '#hotbed/event-store/testing';
import { RpcClient } from '#hotbed/messaging';
import { startWithoutBroker, until, withTestBroker } from '#hotbed/messaging/testing';
import { Health, silentLogger, type HostedApp } from '#hotbed/runtime';
import { createRegistryApp } from './registry.app';
import { inlineDatum, ScriptedLog, training } from './testing/scripted-log';

jest.setTimeout(60_000);

const db = withTestDatabase();
const broker = withTestBroker();
let app: HostedApp;
let client: RpcClient;
let log: ScriptedLog;

beforeAll(async () => {
  const { user, password } = broker.users.credentials('registry');
  const env = {
    HOTBED_DATABASE_URL: db.url,
    HOTBED_BLOB_DIR: db.blobFolder,
    HOTBED_NATS_URL: broker.url,
    HOTBED_NATS_USER: user,
    HOTBED_NATS_PASSWORD: password,
  };
  const host = { logger: silentLogger(), metrics: new Registry(), health: new Health() };
  app = await createRegistryApp(env, host);
  await app.start();
  client = new RpcClient(await broker.as('gateway'));
}, 60_000);
beforeEach(() => {
  log = new ScriptedLog(db);
});
afterAll(() => app.stop());

type Question = CommandName<'registry'>;

/** Asks over the broker; the answer must have the shape that the contract promises. */
async function ask<C extends Question>(
  command: C,
  body: CommandInput<'registry', C>,
  tenantId = log.tenantId,
): Promise<CommandReply<'registry', C>> {
  const answer = await client.request(tenantId, 'registry', command, body);
  return COMMANDS.registry[command].reply.parse(answer);
}

/** Until the tables show everything that is in the log now. */
async function caughtUp(): Promise<void> {
  const { position } = await db.store.head();
  await until('the registry has caught up', async () => BigInt((await ask('head', {})).asOfPosition) >= position);
}

const refusal = (kind: DomainError['kind'], code: string) => expect.objectContaining({ kind, code }) as DomainError;

/** An adapter whose newest version is `count`; version n was made from record n alone. */
async function anAdapterWithVersions(count: number, name?: string) {
  const adapterId = await log.adapter(name);
  const records: string[] = [];
  for (let n = 0; n < count; n++) {
    const { recordId } = await log.record();
    records.push(recordId);
    await log.train(adapterId, inlineDatum(recordId));
    await log.version(adapterId);
  }
  return { adapterId, records };
}

describe('resolving a version', () => {
  it('finds it by alias, by number and by nothing (latest), under the adapter name or id', async () => {
    const { adapterId } = await anAdapterWithVersions(3, 'poet');
    await log.moveAlias(adapterId, 'latest', 3, null);
    await log.moveAlias(adapterId, 'best', 2, null);
    await caughtUp();
    const versionOf = async (adapter: string, ref: string | null) =>
      (await ask('resolve', { adapter, ref })).version.version;
    expect(await versionOf('poet', null)).toBe(3);
    expect(await versionOf('poet', 'latest')).toBe(3);
    expect(await versionOf(adapterId, 'best')).toBe(2);
    expect(await versionOf(adapterId, '1')).toBe(1);
    const { adapter } = await ask('get-adapter', { adapter: 'poet' });
    expect(adapter).toMatchObject({
      adapterId,
      latestVersion: 3,
      appliedOpIndex: '6',
      aliases: { latest: 3, best: 2 },
    });
  });

  it('names what does not exist', async () => {
    const { adapterId } = await anAdapterWithVersions(1);
    await caughtUp();
    const resolve = (adapter: string, ref: string) => ask('resolve', { adapter, ref });
    await expect(resolve('nobody', 'latest')).rejects.toEqual(refusal('NotFound', 'adapter_not_found'));
    await expect(resolve(newId(), 'latest')).rejects.toEqual(refusal('NotFound', 'adapter_not_found'));
    await expect(resolve(adapterId, 'latest')).rejects.toEqual(refusal('NotFound', 'alias_not_found'));
    await expect(resolve(adapterId, '2')).rejects.toEqual(refusal('NotFound', 'version_not_found'));
  });

  it('takes a name for a name even where it looks like the id of another adapter', async () => {
    const first = await log.adapter('plain');
    const second = await log.adapter(first);
    await caughtUp();
    expect((await ask('get-adapter', { adapter: first })).adapter.adapterId).toBe(second);
  });

  it.each(["'; DROP TABLE registry.adapter; --", '%', '_'])(
    'answers the name %j as one that does not exist',
    async (ref) => {
      await expect(ask('get-adapter', { adapter: ref })).rejects.toEqual(refusal('NotFound', 'adapter_not_found'));
      await expect(ask('list-adapters', { page: { after: ref } })).resolves.toBeDefined();
    },
  );

  it.each(['a\u0000b', '\ud800'])(
    'refuses %j, which the database cannot be asked about, naming the field',
    async (ref) => {
      const naming = (path: string) =>
        expect.objectContaining({ fields: [expect.objectContaining({ path })] }) as DomainError;
      await expect(ask('get-adapter', { adapter: ref })).rejects.toEqual(naming('adapter'));
      await expect(ask('list-adapters', { page: { after: ref } })).rejects.toEqual(naming('page.after'));
    },
  );

  it('mlflow#2169: five moves of an alias, and at each time the version that it named then', async () => {
    const { adapterId } = await anAdapterWithVersions(5);
    const moves: { version: number; atMs: number; position: bigint }[] = [];
    for (const version of [1, 2, 3, 5, 4]) {
      const previous = moves.at(-1)?.version ?? null;
      const event = await log.moveAlias(adapterId, 'prod', version, previous, `release ${version}`);
      moves.push({ version, atMs: event.recordedAtMs, position: event.globalPosition });
      await until('the next millisecond', () => Date.now() > event.recordedAtMs);
    }
    await caughtUp();

    const at = async (asOfMs: number) =>
      (await ask('resolve', { adapter: adapterId, ref: 'prod', asOfMs })).version.version;
    await expect(at(moves[0]!.atMs - 1)).rejects.toEqual(refusal('NotFound', 'alias_not_found'));
    for (const [i, move] of moves.entries()) {
      expect(await at(move.atMs)).toBe(move.version);
      // To the last millisecond before the next move.
      const next = moves[i + 1];
      if (next !== undefined) expect(await at(next.atMs - 1)).toBe(move.version);
    }
    expect(await at(Date.now() + 1e9)).toBe(4);
    expect((await ask('resolve', { adapter: adapterId, ref: 'prod' })).version.version).toBe(4);

    const history = await ask('alias-history', { adapter: adapterId, alias: 'prod' });
    expect(history.moves).toEqual(
      moves.map(({ version, atMs, position }, i) => ({
        version,
        previousVersion: moves[i - 1]?.version ?? null,
        reason: `release ${version}`,
        actor: 'test',
        movedAtMs: atMs,
        position: position.toString(),
      })),
    );
  });

  it('keeps the aliases of one adapter apart from those of another', async () => {
    const [one, two] = [await anAdapterWithVersions(2), await anAdapterWithVersions(2)];
    await log.moveAlias(one.adapterId, 'prod', 1, null);
    await log.moveAlias(two.adapterId, 'prod', 2, null);
    await caughtUp();
    expect((await ask('resolve', { adapter: one.adapterId, ref: 'prod' })).version.version).toBe(1);
    expect((await ask('resolve', { adapter: two.adapterId, ref: 'prod' })).version.version).toBe(2);
  });
});

describe('version numbers', () => {
  it('mlflow#22635: 50 checkpoints accepted in parallel become versions 1..50, none twice, none missing', async () => {
    const adapterId = await log.adapter();
    const acceptOnce = async (): Promise<bigint> => {
      for (;;) {
        try {
          return await log.accept(adapterId, { kind: 'checkpoint', label: null });
        } catch (error) {
          if (!(error instanceof DomainError) || error.code !== 'op_index_conflict') throw error;
        }
      }
    };
    const accepted = await Promise.all(Array.from({ length: 50 }, acceptOnce));
    const inOrder = accepted.toSorted((a, b) => Number(a - b));
    expect(inOrder).toEqual(Array.from({ length: 50 }, (_, i) => BigInt(i + 1)));
    for (const opIndex of inOrder) await log.checkpointed(adapterId, opIndex);
    await caughtUp();
    const { versions } = await ask('list-versions', { adapter: adapterId });
    expect(versions.map((v) => [v.version, v.opIndex, v.parentVersion])).toEqual(
      Array.from({ length: 50 }, (_, i) => [i + 1, String(i + 1), i === 0 ? null : i]),
    );
  });
});

describe('lineage', () => {
  it('names records, rollouts, rewards and advantages of a version, in operation order', async () => {
    const adapterId = await log.adapter();
    const { recordId, streamVersion } = await log.record();
    const group = await log.rewardedGroup(recordId, [1, 0]);
    const trained = await log.train(adapterId, inlineDatum(null), log.rolloutDatum(group, [0.5, -0.5]));
    await log.version(adapterId);
    await caughtUp();
    const lineage = await ask('lineage-of-version', { adapter: adapterId, version: 1 });
    const { operationPosition } = lineage.influences[0]!;
    expect(lineage).toMatchObject({ distinctRecords: 1, distinctRollouts: 2, next: null });
    expect(lineage.influences).toEqual([
      {
        opIndex: trained.toString(),
        operationPosition,
        datumIndex: 0,
        recordId: null,
        dataStreamId: null,
        recordVersion: null,
        rollouts: [],
      },
      {
        opIndex: trained.toString(),
        operationPosition,
        datumIndex: 1,
        recordId,
        dataStreamId: log.dataStreamId,
        recordVersion: streamVersion,
        rollouts: [
          { rolloutId: group.rolloutIds[0], reward: 1, advantage: 0.5 },
          { rolloutId: group.rolloutIds[1], reward: 0, advantage: -0.5 },
        ],
      },
    ]);
    const [event] = await db.store.readAll({ after: BigInt(operationPosition) - 1n, limit: 1 });
    expect(event).toMatchObject({ type: 'OperationAccepted', payload: { adapterId, opIndex: trained.toString() } });
  });

  it("Marquez#2733: a version's lineage stays as it was, whatever later versions are made from", async () => {
    const { adapterId, records } = await anAdapterWithVersions(1);
    await caughtUp();
    const { influences: then } = await ask('lineage-of-version', { adapter: adapterId, version: 1 });
    expect(then.map((i) => i.recordId)).toEqual(records);

    const { recordId: later } = await log.record();
    await log.train(adapterId, inlineDatum(later));
    await log.train(adapterId, inlineDatum(records[0]!));
    await log.version(adapterId);
    // Accepted behind the version, and never applied.
    await log.accept(adapterId, training(inlineDatum(later)));
    await caughtUp();
    expect((await ask('lineage-of-version', { adapter: adapterId, version: 1 })).influences).toEqual(then);
    const { influences: second } = await ask('lineage-of-version', { adapter: adapterId, version: 2 });
    expect(second.map((i) => i.recordId)).toEqual([records[0], later, records[0]]);
    const touched = async (recordId: string) =>
      (await ask('versions-of-record', { recordId })).versions.map((v) => v.version);
    expect(await touched(records[0]!)).toEqual([1, 2]);
    expect(await touched(later)).toEqual([2]);
  });

  it('goes from a record to every version of every adapter that it touched, and no other', async () => {
    const { recordId } = await log.record();
    const { recordId: unused } = await log.record();
    const [first, second, third] = [await log.adapter('l-1'), await log.adapter('l-2'), await log.adapter('l-3')];
    await log.version(first);
    const used = await log.train(first, inlineDatum(recordId));
    await log.version(first);
    await log.version(first);
    await log.train(second, inlineDatum(unused), inlineDatum(recordId));
    await log.version(second);
    await log.version(third);
    await caughtUp();
    expect((await ask('versions-of-record', { recordId })).versions).toEqual([
      { adapterId: first, adapterName: 'l-1', version: 2, firstOpIndex: used.toString() },
      { adapterId: first, adapterName: 'l-1', version: 3, firstOpIndex: used.toString() },
      { adapterId: second, adapterName: 'l-2', version: 1, firstOpIndex: '1' },
    ]);
    const { recordId: never } = await log.record();
    await caughtUp();
    expect((await ask('versions-of-record', { recordId: never })).versions).toEqual([]);
  });

  it('does not count the data of a failed operation: it influenced nothing', async () => {
    const adapterId = await log.adapter();
    const [kept, lost] = [await log.record(), await log.record()];
    await log.train(adapterId, inlineDatum(kept.recordId));
    await log.failed(adapterId, await log.accept(adapterId, training(inlineDatum(lost.recordId))));
    await log.version(adapterId);
    await caughtUp();
    const lineage = await ask('lineage-of-version', { adapter: adapterId, version: 1 });
    expect(lineage.influences.map((i) => i.recordId)).toEqual([kept.recordId]);
    expect((await ask('versions-of-record', { recordId: lost.recordId })).versions).toEqual([]);
  });

  it("shows nothing of another tenant's record or rewards, even where an operation names them", async () => {
    const stranger = new ScriptedLog(db);
    const { recordId } = await stranger.record();
    const group = await stranger.rewardedGroup(recordId, [1]);
    const adapterId = await log.adapter();
    await log.train(adapterId, inlineDatum(recordId), stranger.rolloutDatum(group, [1]));
    await log.version(adapterId);
    await caughtUp();
    const { influences } = await ask('lineage-of-version', { adapter: adapterId, version: 1 });
    for (const influence of influences) expect(influence).toMatchObject({ dataStreamId: null, recordVersion: null });
    expect(influences[1]!.rollouts).toEqual([{ rolloutId: group.rolloutIds[0], reward: null, advantage: 1 }]);
    await expect(ask('versions-of-record', { recordId })).rejects.toEqual(refusal('NotFound', 'record_not_found'));
    expect((await ask('versions-of-record', { recordId }, stranger.tenantId)).versions).toEqual([]);
  });
});

describe('pages', () => {
  /** Follows `next` to the end. */
  async function every<T>(page: (after: string | null) => Promise<{ rows: T[]; next: string | null }>): Promise<T[][]> {
    const pages: T[][] = [];
    let after: string | null = null;
    do {
      const { rows, next } = await page(after);
      pages.push(rows);
      after = next;
    } while (after !== null);
    return pages;
  }

  it('give every adapter once, by name', async () => {
    for (const name of ['b', 'a', 'a-1', 'z', 'a.1']) await log.adapter(name);
    await caughtUp();
    const pages = await every(async (after) => {
      const { adapters, next } = await ask('list-adapters', { page: { limit: 2, after } });
      return { rows: adapters.map((a) => a.name), next };
    });
    expect(pages).toEqual([['a', 'a-1'], ['a.1', 'b'], ['z']]);
  });

  it('give every version once, and no empty page at the end', async () => {
    const { adapterId } = await anAdapterWithVersions(4);
    await caughtUp();
    const pages = await every(async (after) => {
      const { versions, next } = await ask('list-versions', { adapter: adapterId, page: { limit: 2, after } });
      return { rows: versions.map((v) => v.version), next };
    });
    expect(pages).toEqual([
      [1, 2],
      [3, 4],
    ]);
  });

  it('give every use of data once, in the middle of an operation too', async () => {
    const adapterId = await log.adapter();
    for (let n = 0; n < 3; n++) await log.train(adapterId, ...Array.from({ length: 3 }, () => inlineDatum(null)));
    await log.version(adapterId);
    await caughtUp();
    const pages = await every(async (after) => {
      const answer = await ask('lineage-of-version', { adapter: adapterId, version: 1, page: { limit: 4, after } });
      return { rows: answer.influences.map((i) => `${i.opIndex}.${i.datumIndex}`), next: answer.next };
    });
    expect(pages).toEqual([['1.0', '1.1', '1.2', '2.0'], ['2.1', '2.2', '3.0', '3.1'], ['3.2']]);
  });

  it('carry as much as one answer may, however much was asked for', async () => {
    const adapterId = await log.adapter();
    const { recordId } = await log.record();
    const group = await log.rewardedGroup(
      recordId,
      Array.from({ length: 64 }, () => 1 / 3),
    );
    const datum = log.rolloutDatum(
      group,
      group.rolloutIds.map(() => 1 / 3),
    );
    await log.train(adapterId, ...Array.from({ length: 50 }, () => datum));
    await log.train(adapterId, ...Array.from({ length: 50 }, () => datum));
    await log.version(adapterId);
    await caughtUp();
    const pages = await every(async (after) => {
      const answer = await ask('lineage-of-version', { adapter: adapterId, version: 1, page: { limit: 1000, after } });
      return { rows: answer.influences.map((i) => `${i.opIndex}.${i.datumIndex}`), next: answer.next };
    });
    expect(pages.length).toBeGreaterThan(1);
    expect(pages.flat()).toEqual([1, 2].flatMap((op) => Array.from({ length: 50 }, (_, i) => `${op}.${i}`)));
  });

  it('refuse a cursor that is none of theirs, naming it', async () => {
    const { adapterId } = await anAdapterWithVersions(1);
    await caughtUp();
    const wrong = expect.objectContaining({ fields: [expect.objectContaining({ path: 'page.after' })] }) as DomainError;
    const page = { after: "1' OR true" };
    await expect(ask('list-versions', { adapter: adapterId, page })).rejects.toEqual(wrong);
    await expect(ask('lineage-of-version', { adapter: adapterId, version: 1, page })).rejects.toEqual(wrong);
  });
});

describe('every answer', () => {
  it('carries the position that it is true at and the head of the log', async () => {
    const { adapterId, records } = await anAdapterWithVersions(1);
    await log.moveAlias(adapterId, 'latest', 1, null);
    await caughtUp();
    const head = await db.store.head();
    const answers = [
      await ask('head', {}),
      await ask('resolve', { adapter: adapterId }),
      await ask('get-adapter', { adapter: adapterId }),
      await ask('list-adapters', {}),
      await ask('list-versions', { adapter: adapterId }),
      await ask('alias-history', { adapter: adapterId, alias: 'latest' }),
      await ask('lineage-of-version', { adapter: adapterId, version: 1 }),
      await ask('versions-of-record', { recordId: records[0]! }),
    ];
    for (const answer of answers) {
      expect(answer.head).toEqual({ position: head.position.toString(), hash: head.hash });
      expect(answer.asOfPosition).toBe(head.position.toString());
    }
  });

  it("says of another tenant's adapter and record that they do not exist", async () => {
    const { adapterId, records } = await anAdapterWithVersions(1, 'secret');
    await log.moveAlias(adapterId, 'latest', 1, null);
    await caughtUp();
    const stranger = newId();
    const missing = refusal('NotFound', 'adapter_not_found');
    for (const adapter of ['secret', adapterId]) {
      await expect(ask('resolve', { adapter }, stranger)).rejects.toEqual(missing);
      await expect(ask('resolve', { adapter, ref: '1' }, stranger)).rejects.toEqual(missing);
      await expect(ask('get-adapter', { adapter }, stranger)).rejects.toEqual(missing);
      await expect(ask('list-versions', { adapter }, stranger)).rejects.toEqual(missing);
      await expect(ask('alias-history', { adapter, alias: 'latest' }, stranger)).rejects.toEqual(missing);
      await expect(ask('lineage-of-version', { adapter, version: 1 }, stranger)).rejects.toEqual(missing);
    }
    expect((await ask('list-adapters', {}, stranger)).adapters).toEqual([]);
    const recordMissing = refusal('NotFound', 'record_not_found');
    await expect(ask('versions-of-record', { recordId: records[0]! }, stranger)).rejects.toEqual(recordMissing);
  });
});

describe('tenants and keys', () => {
  const digestOf = (key: string) => createHash('sha256').update(key).digest('hex');
  const system = <C extends Question>(command: C, body: CommandInput<'registry', C>) =>
    ask(command, body, SYSTEM_TENANT_ID);

  it('makes one tenant of one name, however many ask at once', async () => {
    const answers = await Promise.all(Array.from({ length: 20 }, () => system('create-tenant', { name: 'acme' })));
    expect(new Set(answers.map((a) => a.tenantId)).size).toBe(1);
    expect(answers.filter((a) => a.created)).toHaveLength(1);
    expect(await system('create-tenant', { name: 'acme' })).toEqual({ ...answers[0], created: false });
  });

  it('knows a key from its issue to its revocation, and no longer', async () => {
    const { tenantId } = await system('create-tenant', { name: 'keys' });
    const keyDigest = digestOf('a key');
    const unknown = refusal('Unauthenticated', 'unknown_key');
    await expect(system('authenticate', { keyDigest })).rejects.toEqual(unknown);
    const { keyId } = await system('issue-api-key', { tenantId, role: 'member', keyDigest });
    expect(await system('authenticate', { keyDigest })).toEqual({
      keyId,
      tenantId,
      tenantName: 'keys',
      role: 'member',
    });
    await system('revoke-api-key', { keyId });
    await expect(system('authenticate', { keyDigest })).rejects.toEqual(unknown);
  });

  it('issues one key when an issue is asked for again, and refuses its digest for another tenant', async () => {
    const { tenantId } = await system('create-tenant', { name: 'again' });
    const { tenantId: other } = await system('create-tenant', { name: 'other' });
    const request = { tenantId, role: 'admin' as const, keyDigest: digestOf('asked twice') };
    const answers = await Promise.all([1, 2, 3].map(() => system('issue-api-key', request)));
    expect(new Set(answers.map((a) => a.keyId)).size).toBe(1);
    await expect(system('issue-api-key', { ...request, tenantId: other })).rejects.toMatchObject({ kind: 'Conflict' });
    // The registry goes on.
    await caughtUp();
    expect(await system('authenticate', { keyDigest: request.keyDigest })).toMatchObject({ tenantId, role: 'admin' });
  });

  it('refuses keys of what does not exist', async () => {
    const request = { tenantId: newId(), role: 'member' as const, keyDigest: digestOf('nobody') };
    await expect(system('issue-api-key', request)).rejects.toEqual(refusal('NotFound', 'tenant_not_found'));
    const missing = refusal('NotFound', 'API_key_not_found');
    await expect(system('revoke-api-key', { keyId: newId() })).rejects.toEqual(missing);
  });

  it('records whose key asked, or else that the registry acted', async () => {
    const actor = `key:${newId()}`;
    const inName = <C extends Question>(command: C, body: CommandInput<'registry', C>) =>
      client.request<CommandReply<'registry', C>>(SYSTEM_TENANT_ID, 'registry', command, body, { actor });
    const { tenantId } = await inName('create-tenant', { name: 'named' });
    const { keyId } = await inName('issue-api-key', { tenantId, role: 'member', keyDigest: digestOf('named') });
    await system('revoke-api-key', { keyId });
    const events = await db.store.readStream(streamId('tenant', tenantId));
    expect(events.map((e) => [e.type, e.actor])).toEqual([
      ['TenantCreated', actor],
      ['ApiKeyIssued', actor],
      ['ApiKeyRevoked', 'app:registry'],
    ]);
  });

  it('lets nobody but the platform itself manage tenants and keys', async () => {
    const { tenantId } = await system('create-tenant', { name: 'plain' });
    const refused = refusal('Forbidden', 'system_only');
    await expect(ask('create-tenant', { name: 'mine' }, tenantId)).rejects.toEqual(refused);
    const keyDigest = digestOf('mine');
    await expect(ask('issue-api-key', { tenantId, role: 'admin', keyDigest }, tenantId)).rejects.toEqual(refused);
    await expect(ask('revoke-api-key', { keyId: newId() }, tenantId)).rejects.toEqual(refused);
    await expect(ask('authenticate', { keyDigest }, tenantId)).rejects.toEqual(refused);
  });
});

describe('a start without a broker', () => {
  it('fails in one line and leaves no connection open', async () => {
    const host = { logger: silentLogger(), metrics: new Registry(), health: new Health() };
    await startWithoutBroker(db, (env) => createRegistryApp(env, host));
  });
});
