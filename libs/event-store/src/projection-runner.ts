import {
  DomainError,
  type AnyStoredEvent,
  type Category,
  type EventStore,
  type Transactions,
  type UnitOfWork,
} from '#hotbed/contracts';
import type { LogListener } from './log-listener';

/** A read model as a fold over the log. */
export interface Projection {
  name: string;
  /** Raise it when the meaning of the rows changes: the first run of a new version folds the whole log again. */
  version: number;
  /** Schema of its tables (made by its migration). Statements of `apply` and `reset` may leave it out. */
  schema: string;
  /** Absent = every category. */
  categories?: readonly Category[];
  /** Effects on its own tables only, in log order. */
  apply(events: readonly AnyStoredEvent[], uow: UnitOfWork): Promise<void>;
  /** Empties its tables (DELETE lets readers go on meanwhile, TRUNCATE makes them wait). */
  reset(uow: UnitOfWork): Promise<void>;
}

export interface ProjectionRunnerOptions {
  store: EventStore;
  transactions: Transactions;
  listener: LogListener;
  projection: Projection;
  batchSize?: number;
  pollIntervalMs?: number;
  /** A batch failed; the runner tries it again and never skips it. */
  onError?: (error: unknown) => void;
}

interface State {
  position: bigint;
  epoch: bigint;
}

/**
 * 1. Position and rows move in one transaction, compare-and-set on (name, version, position, epoch): any number of
 *    processes may run one projection; each event is applied once.
 * 2. A rebuild, and the first run of a new version over an older one's tables, empties and folds in one transaction:
 *    readers see the old rows or the new ones, never half of them.
 * 3. A rebuild raises the epoch and a new version removes the older one's row: runners that read the state before are
 *    refused, and those of an older version stop.
 */
export class ProjectionRunner {
  private readonly stopping = new AbortController();
  private loop: Promise<void> | null = null;
  private lastError: unknown = null;

  constructor(private readonly options: ProjectionRunnerOptions) {
    const { schema, name } = options.projection;
    if (!/^[a-z_][a-z0-9_]*$/.test(schema)) throw new TypeError(`projection ${name}: "${schema}" is no schema name`);
  }

  start(): void {
    this.loop ??= this.run();
  }

  async stop(): Promise<void> {
    this.stopping.abort();
    await this.loop;
  }

  /** Why the projection stands still, or null while it runs. */
  get failure(): unknown {
    return this.lastError;
  }

  /** Position through which the rows are complete. */
  async position(): Promise<bigint> {
    return (await this.state()).position;
  }

  /** Applies everything that is in the log now; returns the position reached. */
  async catchUp(): Promise<bigint> {
    const { position: target } = await this.options.store.head();
    for (;;) {
      const reached = await this.step();
      if (reached >= target) return reached;
    }
  }

  /** Empties the rows and folds the whole log again; returns the position reached. */
  async rebuild(): Promise<bigint> {
    await this.state();
    return this.options.transactions.run((uow) => this.fold(uow));
  }

  private async run(): Promise<void> {
    const { listener, pollIntervalMs = 1000, onError } = this.options;
    while (!this.stopping.signal.aborted) {
      try {
        const before = (await this.state()).position;
        const reached = await this.step();
        this.lastError = null;
        if (reached === before) await listener.waitBeyond(reached, pollIntervalMs, this.stopping.signal);
      } catch (error) {
        this.lastError = error;
        onError?.(error);
        await listener.waitBeyond(2n ** 63n, pollIntervalMs, this.stopping.signal);
        // An event of a newer Hotbed: only a restart with newer code helps.
        if (error instanceof DomainError && error.kind === 'IllegalState') return;
      }
    }
  }

  /** One batch. Returns the position of the rows afterwards, whoever moved it. */
  private async step(): Promise<bigint> {
    const { store, transactions, projection, batchSize = 500 } = this.options;
    const { position, epoch } = await this.state();
    // The head first: every event up to it is visible to the read that follows.
    const head = (await store.head()).position;
    if (position >= head) return position;
    const events = await store.readAll({ after: position, limit: batchSize, categories: projection.categories });
    const last = events.at(-1)?.globalPosition ?? 0n;
    const next = events.length === batchSize || last > head ? last : head;
    const moved = await transactions.run(async (uow) => {
      const rows = await uow.query(
        `UPDATE es.projection SET position = $5 WHERE name = $1 AND version = $2 AND position = $3 AND epoch = $4
         RETURNING 1`,
        [projection.name, projection.version, position, epoch, next],
      );
      if (rows.length === 0) return false;
      if (events.length === 0) return true;
      await this.useSchema(uow);
      await projection.apply(events, uow);
      return true;
    });
    return moved ? next : (await this.state()).position;
  }

  private async useSchema(uow: UnitOfWork): Promise<void> {
    await uow.query(`SET LOCAL search_path TO ${this.options.projection.schema}, pg_catalog`);
  }

  private async state(): Promise<State> {
    const { projection, transactions } = this.options;
    const known = await transactions.run((uow) => this.readState(uow));
    if (known !== null) return known;
    return transactions.run(async (uow) => {
      // Of several runners that start at once the first makes the row, and the others wait for it here.
      const made = await uow.query(
        'INSERT INTO es.projection (name, version) VALUES ($1, $2) ON CONFLICT DO NOTHING RETURNING 1',
        [projection.name, projection.version],
      );
      const older = await uow.query('SELECT FROM es.projection WHERE name = $1 AND version < $2 FOR UPDATE', [
        projection.name,
        projection.version,
      ]);
      if (made.length > 0 && older.length > 0) {
        await this.fold(uow);
        await uow.query('DELETE FROM es.projection WHERE name = $1 AND version < $2', [
          projection.name,
          projection.version,
        ]);
      }
      return (await this.readState(uow))!;
    });
  }

  /** @throws IllegalState `projection_superseded` where a newer Hotbed has taken the tables over */
  private async readState(uow: UnitOfWork): Promise<State | null> {
    const { name, version } = this.options.projection;
    const rows = await uow.query<State & { version: number }>(
      'SELECT version, position, epoch FROM es.projection WHERE name = $1 ORDER BY version DESC',
      [name],
    );
    if (rows[0] !== undefined && rows[0].version > version) {
      throw new DomainError(
        'IllegalState',
        'projection_superseded',
        `projection ${name} is at version ${rows[0].version}; this process knows version ${version}: update it`,
        { context: { name, version } },
      );
    }
    return rows.find((row) => row.version === version) ?? null;
  }

  /** The whole log, from nothing, in the caller's transaction. */
  private async fold(uow: UnitOfWork): Promise<bigint> {
    const { projection, store, batchSize = 500 } = this.options;
    await uow.query('UPDATE es.projection SET epoch = epoch + 1 WHERE name = $1 AND version = $2', [
      projection.name,
      projection.version,
    ]);
    const { position: head } = await store.head();
    await this.useSchema(uow);
    await projection.reset(uow);
    let position = 0n;
    while (position < head) {
      const { categories } = projection;
      const events = await store.readAll({ after: position, limit: batchSize, categories });
      const within = events.filter((event) => event.globalPosition <= head);
      if (within.length > 0) await projection.apply(within, uow);
      position = within.length === batchSize ? within.at(-1)!.globalPosition : head;
    }
    await uow.query('UPDATE es.projection SET position = $3 WHERE name = $1 AND version = $2', [
      projection.name,
      projection.version,
      head,
    ]);
    return head;
  }
}
