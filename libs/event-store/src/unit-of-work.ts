import type { AppendItem, AppendResult, BlobStore, Transactions, UnitOfWork } from '#hotbed/contracts';
import type { Pool, PoolClient } from 'pg';
import { APPEND_SQL, appendParameters, encodeItem, readOutcomes, type AppendReply } from './append-call';
import { isConnectionLoss, toDomainError } from './database-errors';

/**
 * 1. Statements of one transaction run one at a time, in the order of their calls.
 * 2. Nothing is written after the transaction ended: a late call is refused.
 * 3. A failed statement or a refused append dooms the transaction, even where the caller swallowed the error.
 */
export class PgTransactions implements Transactions {
  constructor(
    private readonly pool: Pool,
    private readonly blobs: BlobStore,
  ) {}

  async run<T>(work: (uow: UnitOfWork) => Promise<T>): Promise<T> {
    let client: PoolClient;
    try {
      client = await this.pool.connect();
    } catch (error) {
      throw toDomainError(error);
    }
    let broken: unknown = null;
    const onError = (error: Error): void => void (broken = error);
    client.on('error', onError);
    const uow = new PgUnitOfWork(client, this.blobs);
    try {
      await client.query('BEGIN');
      const result = await work(uow);
      await uow.end();
      await client.query('COMMIT');
      return result;
    } catch (error) {
      await uow.end().catch(() => undefined);
      if (isConnectionLoss(error)) broken = error;
      else await client.query('ROLLBACK').catch((rollbackError: unknown) => void (broken = rollbackError));
      throw toDomainError(error);
    } finally {
      client.off('error', onError);
      client.release(broken === null ? undefined : true);
    }
  }
}

class PgUnitOfWork implements UnitOfWork {
  private tail: Promise<unknown> = Promise.resolve();
  private ended = false;
  private failure: { error: unknown } | null = null;

  constructor(
    private readonly client: PoolClient,
    private readonly blobs: BlobStore,
  ) {}

  query<R extends object>(sql: string, parameters: readonly unknown[] = []): Promise<R[]> {
    return this.enqueue(async () => (await this.client.query<R & object>(sql, [...parameters])).rows);
  }

  append(items: readonly AppendItem[]): Promise<AppendResult[]> {
    return this.enqueue(async () => {
      const encoded = await Promise.all(items.map((item) => encodeItem(item, this.blobs)));
      const { rows } = await this.client.query<{ result: AppendReply }>({
        name: 'es_append',
        text: APPEND_SQL,
        values: appendParameters(encoded),
      });
      return readOutcomes(rows[0]!.result).map((outcome) => {
        if ('error' in outcome) throw outcome.error;
        return outcome.ok;
      });
    });
  }

  /** Waits for statements that nobody awaited. @throws the first failure */
  async end(): Promise<void> {
    this.ended = true;
    await this.tail;
    if (this.failure !== null) throw this.failure.error;
  }

  private enqueue<T>(statement: () => Promise<T>): Promise<T> {
    if (this.ended) return Promise.reject(new Error('this unit of work has ended; await every call inside run()'));
    const result = this.tail.then(() => {
      if (this.failure !== null) throw this.failure.error;
      return statement();
    });
    this.tail = result.catch((error: unknown) => {
      this.failure ??= { error };
    });
    return result;
  }
}
