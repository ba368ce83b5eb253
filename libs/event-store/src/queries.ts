import type { Pool, QueryResult, QueryResultRow } from 'pg';
import { withDomainErrors } from './database-errors';

/** Reads of a read model: what the database cannot answer now is Unavailable, as everywhere else. */
export class Queries {
  constructor(private readonly pool: Pool) {}

  query<R extends QueryResultRow>(sql: string, parameters: readonly unknown[] = []): Promise<QueryResult<R>> {
    return withDomainErrors(() => this.pool.query<R>(sql, [...parameters]));
  }
}
