import { RPC_LIMIT_BYTES } from './rpc-server';

/** What a page may take of one answer; the rest is for its other fields. */
const ROWS_BYTES = RPC_LIMIT_BYTES - 64 * 1024;

/** The first rows of a page that one answer carries, at least one: whoever wants more asks for the next page. */
export function fittingRows<T>(rows: readonly T[]): T[] {
  let bytes = 0;
  const tooMany = rows.findIndex((row) => (bytes += Buffer.byteLength(JSON.stringify(row)) + 1) > ROWS_BYTES);
  return rows.slice(0, tooMany < 0 ? rows.length : Math.max(1, tooMany));
}
