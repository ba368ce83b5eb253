import fc from 'fast-check';
import { newId, streamId } from '#hotbed/contracts';
import { LogListener, ProjectionRunner } from '#hotbed/event-store';
import { newEvent, withTestDatabase } from '#hotbed/event-store/testing';
import { inlineDatum, ScriptedLog, training, type RewardedGroup } from '../testing/scripted-log';
import { REGISTRY_TABLES, registryProjection } from './registry.projection';

jest.setTimeout(60_000);

const db = withTestDatabase();
let listener: LogListener;

beforeAll(async () => {
  listener = await LogListener.start(db.url);
});
afterAll(() => listener.close());

const runner = (batchSize: number): ProjectionRunner =>
  new ProjectionRunner({
    store: db.store,
    transactions: db.transactions,
    listener,
    projection: registryProjection,
    batchSize,
  });

/** Every row of every table, in an order of its own. */
async function rows(): Promise<Record<string, string[]>> {
  const all: Record<string, string[]> = {};
  for (const table of REGISTRY_TABLES) {
    const found = await db.pool.query<{ row: string }>(`SELECT t::text AS row FROM ${table} t ORDER BY 1`);
    all[table] = found.rows.map(({ row }) => row);
  }
  return all;
}

/** Takes one step of a random history; every choice comes from `choose`. */
class RandomHistory {
  private readonly log = new ScriptedLog(db);
  private readonly adapters: { id: string; pending: bigint[]; versions: number }[] = [];
  private readonly groups: RewardedGroup[] = [];
  private readonly records: string[] = [];
  private readonly keys: { keyId: string; tenantId: string }[] = [];

  async take(action: number, choose: (below: number) => number): Promise<void> {
    const adapter = this.adapters[choose(Math.max(1, this.adapters.length))];
    switch (action) {
      case 0:
        this.adapters.push({ id: await this.log.adapter(), pending: [], versions: 0 });
        return;
      case 1:
        this.records.push((await this.log.record()).recordId);
        return;
      case 2: {
        const recordId = this.records[choose(Math.max(1, this.records.length))];
        const rewards = Array.from({ length: 1 + choose(3) }, () => choose(2));
        if (recordId !== undefined) this.groups.push(await this.log.rewardedGroup(recordId, rewards));
        return;
      }
      case 3: {
        const group = this.groups[choose(Math.max(1, this.groups.length))];
        const datum =
          group === undefined || choose(3) === 0
            ? inlineDatum(this.records[choose(1 + this.records.length)] ?? null)
            : this.log.rolloutDatum(
                group,
                group.rolloutIds.map(() => choose(5) / 4 - 0.5),
              );
        if (adapter !== undefined) adapter.pending.push(await this.log.accept(adapter.id, training(datum)));
        return;
      }
      case 4: {
        const opIndex = adapter?.pending.shift();
        if (opIndex === undefined) return;
        await (choose(3) === 0 ? this.log.failed(adapter!.id, opIndex) : this.log.applied(adapter!.id, opIndex));
        return;
      }
      case 5:
        if (adapter !== undefined && adapter.pending.length === 0)
          adapter.versions = await this.log.version(adapter.id);
        return;
      case 6:
        if (adapter !== undefined && adapter.versions > 0)
          await this.log.moveAlias(adapter.id, ['latest', 'best'][choose(2)]!, 1 + choose(adapter.versions), null);
        return;
      default:
        await this.takeTenantStep(choose);
    }
  }

  private async takeTenantStep(choose: (below: number) => number): Promise<void> {
    const key = this.keys[choose(Math.max(1, this.keys.length))];
    if (key !== undefined && choose(2) === 0) {
      await this.log.append(streamId('tenant', key.tenantId), [newEvent('ApiKeyRevoked', key.tenantId, key)]);
      return;
    }
    const [tenantId, keyId] = [newId(), newId()];
    const keyDigest = (keyId + keyId).replaceAll('-', '');
    this.keys.push({ keyId, tenantId });
    await this.log.append(streamId('tenant', tenantId), [
      newEvent('TenantCreated', tenantId, { tenantId, name: `t-${tenantId}` }),
      newEvent('ApiKeyIssued', tenantId, { keyId, tenantId, role: 'member', label: '', keyDigest }),
    ]);
  }
}

describe('the registry projection', () => {
  it('gives the same rows rebuilt from the log as live, however the log was batched', async () => {
    const step = fc.record({
      action: fc.integer({ min: 0, max: 7 }),
      choices: fc.array(fc.nat(1000), { minLength: 6, maxLength: 6 }),
      catchUp: fc.boolean(),
    });
    await fc.assert(
      fc.asyncProperty(
        fc.array(step, { minLength: 20, maxLength: 40 }),
        fc.integer({ min: 1, max: 9 }),
        async (steps, batchSize) => {
          const history = new RandomHistory();
          const live = runner(batchSize);
          for (const action of [0, 1, 2]) await history.take(action, () => 0);
          for (const { action, choices, catchUp } of steps) {
            let at = 0;
            await history.take(action, (below) => choices[at++ % choices.length]! % below);
            if (catchUp) await live.catchUp();
          }
          await live.catchUp();
          const before = await rows();
          await runner(500).rebuild();
          expect(await rows()).toEqual(before);
        },
      ),
      { seed: 2169, numRuns: 8, endOnFailure: true },
    );
    // The comparison is worth something only where there is something to compare.
    for (const [table, found] of Object.entries(await rows())) expect([table, found.length > 0]).toEqual([table, true]);
  });

  it('applies each event once when two runners fold the same log at once', async () => {
    const log = new ScriptedLog(db);
    const adapterId = await log.adapter();
    const { recordId } = await log.record();
    for (let i = 0; i < 20; i++) await log.train(adapterId, inlineDatum(recordId));
    await Promise.all([runner(3).catchUp(), runner(4).catchUp()]);
    const { rows: found } = await db.pool.query<{ n: number }>(
      'SELECT count(*)::integer AS n FROM registry.influence WHERE adapter_id = $1',
      [adapterId],
    );
    expect(found[0]?.n).toBe(20);
  });
});
