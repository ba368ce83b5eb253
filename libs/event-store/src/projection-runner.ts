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
  /** Raise it when the meaning of the rows changes: a new version begins at position 0. */
  version: number;
  /** Schema of its tables (made by its migration). Statements of `apply` and `reset` may leave it out. */
  schema: string;
  /** Absent = every category. */
  categories?: readonly Category[];
  /** Effects on its own tables only, in log order. */
  apply(events: readonly AnyStoredEvent[], uow: UnitOfWork): Promise<void>;
  /** Empties its tables. */
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
 * 2. A rebuild raises the epoch, which fences every runner that read the state before.
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

  /** Empties the rows and folds the whole log again. */
  async rebuild(): Promise<bigint> {
    const { projection, transactions } = this.options;
    await this.state();
    await transactions.run(async (uow) => {
      await uow.query('UPDATE es.projection SET position = 0, epoch = epoch + 1 WHERE name = $1 AND version = $2', [
        projection.name,
        projection.version,
      ]);
      await this.useSchema(uow);
      await projection.reset(uow);
    });
    return this.catchUp();
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

  private state(): Promise<State> {
    const { projection, transactions } = this.options;
    return transactions.run(async (uow) => {
      const read = (): Promise<State[]> =>
        uow.query<State>('SELECT position, epoch FROM es.projection WHERE name = $1 AND version = $2', [
          projection.name,
          projection.version,
        ]);
      const [known] = await read();
      if (known !== undefined) return known;
      await uow.query('INSERT INTO es.projection (name, version) VALUES ($1, $2) ON CONFLICT DO NOTHING', [
        projection.name,
        projection.version,
      ]);
      return (await read())[0]!;
    });
  }
}
