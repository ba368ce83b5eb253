import { LeaseLost, Unavailable } from '#hotbed/contracts';
import type { Client, Pool } from 'pg';
import { toDomainError, withDomainErrors } from './database-errors';
import { dedicatedClient } from './pool';

export interface Lease {
  resource: string;
  /** Rises with every change of owner; goes into every commit made under the lease. */
  epoch: bigint;
}

export interface LeasesOptions {
  databaseUrl: string;
  pool: Pool;
  workerId: string;
  /** After this long without a renewal another worker may take over even while our connection stands. */
  ttlMs?: number;
  /** The lease is no longer ours: stop its work, drop its hot state. Called once per lost lease. */
  onLost: (lease: Lease) => void;
  /** The session lock is gone, and with it every lease (onLost was called for each): register again. */
  onDisconnected: (error: Error) => void;
}

/**
 * One worker's leases.
 *
 * 1. The worker's identity is the key of a session advisory lock on one dedicated connection: while it is held, the
 *    worker lives. It frees itself when the process or its connection dies.
 * 2. A claim needs the owner's key to be free, or the lease expired by the database's clock; then epoch + 1 under the
 *    row lock. So a restarted worker does not wait for its own ghost, and a paused one that wakes up late is refused:
 *    es.append rechecks the epoch.
 */
export class Leases {
  private readonly held = new Map<string, Lease>();
  private renewing: NodeJS.Timeout | null = null;
  private lost: Error | null = null;
  private closed = false;

  private constructor(
    private readonly options: LeasesOptions,
    private readonly session: Client,
    private readonly ttlMs: number,
    /** Key of the session lock; bigint identity of the worker row. */
    readonly identity: bigint,
  ) {
    session.on('error', (error) => this.disconnected(error));
    session.on('end', () => this.disconnected(new Error('the lease connection ended')));
    this.scheduleRenewal();
  }

  /** Makes a worker row and takes its session lock. @throws Unavailable */
  static async register(options: LeasesOptions): Promise<Leases> {
    const session = dedicatedClient(options.databaseUrl, `hotbed-leases ${options.workerId}`);
    const ignoreUntilOwned = (): void => undefined;
    session.on('error', ignoreUntilOwned);
    try {
      await session.connect();
      const { rows } = await session.query<{ identity: bigint }>(
        'INSERT INTO es.worker (worker_id, process_id) VALUES ($1, $2) RETURNING identity',
        [options.workerId, process.pid],
      );
      await session.query('SELECT pg_advisory_lock($1)', [rows[0]!.identity]);
      session.off('error', ignoreUntilOwned);
      return new Leases(options, session, options.ttlMs ?? 15_000, rows[0]!.identity);
    } catch (error) {
      await session.end().catch(() => undefined);
      throw toDomainError(error);
    }
  }

  /** Leases held, as far as this process knows. */
  get leases(): readonly Lease[] {
    return [...this.held.values()];
  }

  /** The lease, or null while another live worker holds it. Claiming what we hold extends it. @throws Unavailable */
  async claim(resource: string): Promise<Lease | null> {
    if (this.lost !== null || this.closed) {
      throw new Unavailable('leases_disconnected', 'the lease connection is gone; register the worker again', {
        cause: this.lost,
      });
    }
    const epoch = await withDomainErrors(() => this.claimRow(resource));
    if (epoch === null) return null;
    const lease = { resource, epoch };
    const before = this.held.get(resource);
    if (this.lost !== null) throw new LeaseLost(resource, epoch.toString());
    this.held.set(resource, lease);
    if (before !== undefined && before.epoch !== epoch) this.options.onLost(before);
    return lease;
  }

  private async claimRow(resource: string): Promise<bigint | null> {
    const client = await this.options.pool.connect();
    let broken = false;
    try {
      await client.query('BEGIN');
      await client.query('INSERT INTO es.lease (resource) VALUES ($1) ON CONFLICT DO NOTHING', [resource]);
      const { rows: current } = await client.query<{ owner: bigint | null; expired: boolean }>(
        'SELECT owner, expires_at <= clock_timestamp() AS expired FROM es.lease WHERE resource = $1 FOR UPDATE',
        [resource],
      );
      const { owner, expired } = current[0]!;
      // Shared, so that two claimers asking at once do not take each other for the owner.
      const free =
        owner === null ||
        owner === this.identity ||
        expired ||
        (await client.query<{ free: boolean }>('SELECT pg_try_advisory_xact_lock_shared($1) AS free', [owner])).rows[0]!
          .free;
      if (!free) {
        await client.query('ROLLBACK');
        return null;
      }
      const { rows } = await client.query<{ epoch: bigint }>(
        `UPDATE es.lease SET owner = $2, expires_at = clock_timestamp() + $3 * interval '1 millisecond',
                epoch = epoch + CASE WHEN owner = $2 AND epoch = $4 THEN 0 ELSE 1 END
         WHERE resource = $1 RETURNING epoch`,
        [resource, this.identity, this.ttlMs, this.held.get(resource)?.epoch ?? null],
      );
      await client.query('COMMIT');
      return rows[0]!.epoch;
    } catch (error) {
      await client.query('ROLLBACK').catch(() => void (broken = true));
      throw error;
    } finally {
      client.release(broken);
    }
  }

  /** Gives the lease up; a later claim by anyone succeeds at once. */
  async release(resource: string): Promise<void> {
    const lease = this.held.get(resource);
    if (lease === undefined) return;
    this.held.delete(resource);
    await withDomainErrors(() =>
      this.options.pool.query(
        `UPDATE es.lease SET owner = NULL, expires_at = '-infinity' WHERE resource = $1 AND owner = $2 AND epoch = $3`,
        [resource, this.identity, lease.epoch],
      ),
    );
  }

  /** Releases everything and frees the session lock. */
  async close(): Promise<void> {
    if (this.closed) return;
    for (const resource of [...this.held.keys()]) await this.release(resource).catch(() => undefined);
    this.closed = true;
    if (this.renewing !== null) clearTimeout(this.renewing);
    await this.session.end().catch(() => undefined);
  }

  private scheduleRenewal(): void {
    this.renewing = setTimeout(() => void this.renew(), this.ttlMs / 3);
  }

  private async renew(): Promise<void> {
    try {
      // Sorted, as es.append locks leases: no deadlock between the two.
      const { rows } = await this.session.query<{ resource: string; epoch: bigint }>(
        `UPDATE es.lease l SET expires_at = clock_timestamp() + $2 * interval '1 millisecond'
         FROM (SELECT resource FROM es.lease WHERE owner = $1 ORDER BY resource FOR NO KEY UPDATE) mine
         WHERE l.resource = mine.resource RETURNING l.resource, l.epoch`,
        [this.identity, this.ttlMs],
      );
      const renewed = new Map(rows.map((row) => [row.resource, row.epoch]));
      for (const lease of this.leases) {
        // A claim that committed after this statement's snapshot is missing from it and still ours.
        if (renewed.get(lease.resource) !== lease.epoch && !(await this.isOurs(lease))) this.drop(lease);
      }
    } catch (error) {
      this.disconnected(error as Error);
    }
    if (this.lost === null && !this.closed) this.scheduleRenewal();
  }

  private async isOurs(lease: Lease): Promise<boolean> {
    const { rows } = await this.session.query(
      'SELECT FROM es.lease WHERE resource = $1 AND owner = $2 AND epoch = $3',
      [lease.resource, this.identity, lease.epoch],
    );
    return rows.length === 1;
  }

  private drop(lease: Lease): void {
    if (this.held.get(lease.resource) !== lease) return;
    this.held.delete(lease.resource);
    this.options.onLost(lease);
  }

  private disconnected(error: Error): void {
    if (this.lost !== null || this.closed) return;
    this.lost = error;
    if (this.renewing !== null) clearTimeout(this.renewing);
    void this.session.end().catch(() => undefined);
    for (const lease of this.leases) this.drop(lease);
    this.options.onDisconnected(error);
  }
}
