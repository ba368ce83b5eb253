import { LeaseLost, OpIndexConflict, newId } from '#hotbed/contracts';
import {
  aRolloutAnswer,
  aRolloutRequest,
  anAcceptance,
  anAdapterCreation,
  anApplication,
  withTestDatabase,
} from '#hotbed/event-store/testing';
import { Leases } from './leases';

const tenant = newId();

describe('operations of an adapter', () => {
  const db = withTestDatabase();
  let leases: Leases;
  beforeAll(async () => {
    leases = await Leases.register({
      databaseUrl: db.url,
      pool: db.pool,
      workerId: newId(),
      onLost: () => undefined,
      onDisconnected: () => undefined,
    });
  });
  afterAll(() => leases.close());

  it('are accepted in order: any other proposal is told the next index', async () => {
    const adapter = newId();
    await expect(db.store.append(anAcceptance(tenant, adapter, 1n))).rejects.toMatchObject({
      code: 'adapter_not_found',
    });
    await db.store.append(anAdapterCreation(tenant, adapter));
    expect(await db.store.adapterHead(adapter)).toEqual({ nextOpIndex: 1n, appliedOpIndex: 0n });
    await db.store.append(anAcceptance(tenant, adapter, 1n, 3n));
    const late = db.store.append(anAcceptance(tenant, adapter, 3n));
    await expect(late).rejects.toBeInstanceOf(OpIndexConflict);
    await expect(late).rejects.toMatchObject({ context: { proposed: '3', next: '4' } });
    await expect(db.store.append(anAcceptance(tenant, adapter, 5n))).rejects.toMatchObject({ context: { next: '4' } });
    expect(await db.store.adapterHead(adapter)).toEqual({ nextOpIndex: 4n, appliedOpIndex: 0n });
  });

  it('are accepted once each by 20 parallel proposers', async () => {
    const adapter = newId();
    await db.store.append(anAdapterCreation(tenant, adapter));
    const results = await Promise.allSettled(
      Array.from({ length: 20 }, () => db.store.append(anAcceptance(tenant, adapter, 1n))),
    );
    expect(results.filter((r) => r.status === 'fulfilled')).toHaveLength(1);
    await Promise.all(
      [4n, 2n, 3n].map((n) => db.store.append(anAcceptance(tenant, adapter, n)).catch(() => undefined)),
    );
    const operations = await db.workList.operationsFrom(adapter, 0n);
    expect(operations.map((o) => o.payload.opIndex)).toEqual(operations.map((_, i) => String(i + 1)));
  });

  it('may be created and accepted in one item', async () => {
    const adapter = newId();
    const creation = anAdapterCreation(tenant, adapter);
    const acceptance = anAcceptance(tenant, adapter, 1n, 2n);
    await db.store.append({
      writes: [{ ...creation.writes[0]!, events: [...creation.writes[0]!.events, ...acceptance.writes[0]!.events] }],
      heads: [...creation.heads!, ...acceptance.heads!],
    });
    expect((await db.workList.unappliedOperations(adapter)).map((o) => o.streamVersion)).toEqual([2n, 3n]);
  });

  it('are applied one after the other, under the current lease epoch only', async () => {
    const adapter = newId();
    await db.store.append(anAdapterCreation(tenant, adapter));
    await db.store.append(anAcceptance(tenant, adapter, 1n, 2n));
    await expect(db.store.append(anApplication(tenant, adapter, 1n, 0n))).rejects.toBeInstanceOf(LeaseLost);
    const { epoch } = (await leases.claim(`adapter:${adapter}`))!;
    await expect(db.store.append(anApplication(tenant, adapter, 1n, epoch + 1n))).rejects.toBeInstanceOf(LeaseLost);
    await expect(db.store.append(anApplication(tenant, adapter, 2n, epoch))).rejects.toBeInstanceOf(OpIndexConflict);
    await db.store.append(anApplication(tenant, adapter, 1n, epoch));
    await expect(db.store.append(anApplication(tenant, adapter, 1n, epoch))).rejects.toMatchObject({
      context: { next: '2' },
    });
    expect((await db.workList.unappliedOperations(adapter)).map((o) => o.payload.opIndex)).toEqual(['2']);
    expect(await db.workList.adaptersWithUnapplied(1000)).toContain(adapter);
    await db.store.append(anApplication(tenant, adapter, 2n, epoch));
    expect(await db.workList.unappliedOperations(adapter)).toEqual([]);
    expect(await db.workList.adaptersWithUnapplied(1000)).not.toContain(adapter);
    // Nothing beyond what was accepted.
    await expect(db.store.append(anApplication(tenant, adapter, 3n, epoch))).rejects.toBeInstanceOf(OpIndexConflict);
    const replay = await db.workList.operationsFrom(adapter, 0n, { upTo: 1n });
    expect(replay.map((o) => o.payload.opIndex)).toEqual(['1']);
  });

  it('are refused as a bug where an event and its head change disagree', async () => {
    const adapter = newId();
    const acceptance = anAcceptance(tenant, adapter, 1n);
    await expect(db.store.append({ writes: acceptance.writes })).rejects.toBeInstanceOf(TypeError);
    const skewed = { ...acceptance, heads: [{ change: 'accept' as const, adapterId: adapter, first: 2n, last: 2n }] };
    await expect(db.store.append(skewed)).rejects.toBeInstanceOf(TypeError);
    await expect(db.store.append({ ...anAdapterCreation(tenant, adapter), heads: [] })).rejects.toBeInstanceOf(
      TypeError,
    );
  });
});

describe('rollout requests', () => {
  const db = withTestDatabase();

  it('stay open per prompt until each is answered, and are answered once', async () => {
    const [key, request] = [newId(), newId()];
    await db.store.append(aRolloutRequest(tenant, key, request, 3));
    const open = await db.workList.openRequests(10);
    expect(open.map((o) => [o.requestId, o.promptIndex, o.requestVersion])).toEqual([
      [request, 0, 1n],
      [request, 1, 1n],
      [request, 2, 1n],
    ]);
    expect((await db.workList.requestOf(open[0]!)).payload.requestId).toBe(request);
    const answers = await Promise.allSettled(
      Array.from({ length: 10 }, () => db.store.append(aRolloutAnswer(tenant, key, request, 1))),
    );
    expect(answers.filter((a) => a.status === 'fulfilled')).toHaveLength(1);
    for (const a of answers) if (a.status === 'rejected') expect(a.reason).toMatchObject({ code: 'request_answered' });
    expect((await db.workList.openRequests(10)).map((o) => o.promptIndex)).toEqual([0, 2]);
    await expect(db.store.append(aRolloutAnswer(tenant, key, newId(), 0))).rejects.toMatchObject({
      code: 'request_not_found',
    });
    await expect(db.store.append(aRolloutRequest(tenant, key, request, 1))).rejects.toMatchObject({
      code: 'request_exists',
    });
  });

  it('are listed oldest first, of the adapters that were asked for', async () => {
    const [key, request] = [newId(), newId()];
    await db.store.append(aRolloutRequest(tenant, key, request));
    expect((await db.workList.openRequests(100)).at(-1)!.requestId).toBe(request);
    expect(await db.workList.openRequests(100, [newId()])).toEqual([]);
    expect((await db.workList.openRequests(100, [newId(), null])).length).toBeGreaterThan(0);
  });
});
