import type { Page } from '#hotbed/contracts';

/** `?limit=..&after=..`: text, as a query has it. */
export interface PageQuery {
  limit?: string;
  after?: string;
}

/** Not a number becomes NaN here and is refused, by name, where the command is checked. */
export function pageOf(query: PageQuery, defaultLimit = 100): Page {
  return { limit: query.limit === undefined ? defaultLimit : Number(query.limit), after: query.after ?? null };
}
