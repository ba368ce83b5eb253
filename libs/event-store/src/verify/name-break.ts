import { hashOf, sameBytes } from './hash-rule';
import type { LogProblem, LogRow } from './log-row';

/** How far a moved row is looked for. */
const SEARCH = 4096n;

/**
 * Says what was done to the log where its chain breaks.
 * @param row the row whose hash or link is wrong; @param next the one after it, if any
 * @param previous hash that the chain has reached
 */
export function nameBreak(row: LogRow, next: LogRow | null, previous: Uint8Array): LogProblem {
  const position = row.globalPosition;
  const home = madeFor(row);
  if (home === position) {
    // The row itself is whole: it continues another row than the one before it.
    return next !== null && sameBytes(next.prevHash, previous)
      ? problem('inserted', position, 'a row was inserted that the row after it does not continue')
      : problem('rewritten', position, 'its row does not continue the row before it: the log was rewritten up to here');
  }
  if (home !== null) return nameMove(position, home, next);
  if (next !== null && !sameBytes(next.prevHash, row.eventHash) && sameBytes(next.prevHash, previous)) {
    return problem('inserted', position, 'a row was inserted: the row after it continues the row before it');
  }
  return problem('changed', position, 'its hashed bytes, version or time were changed: they do not give its hash');
}

function nameMove(position: bigint, home: bigint, next: LogRow | null): LogProblem {
  if (home < position) {
    return problem('inserted', position, `its row was made for position ${home}: rows were inserted before it`);
  }
  const nextHome = next === null ? null : madeFor(next);
  const shifted = next !== null && nextHome !== null && nextHome - next.globalPosition === home - position;
  return shifted
    ? problem(
        'deleted',
        position,
        `its row was made for position ${home}: ${home - position} rows were deleted before it`,
      )
    : problem('swapped', position, `its row was made for position ${home}: rows were swapped`);
}

/** Position whose hash the row carries, nearest first; null when its bytes give its hash nowhere. */
function madeFor(row: LogRow): bigint | null {
  for (let distance = 0n; distance <= SEARCH; distance++) {
    for (const candidate of [row.globalPosition + distance, row.globalPosition - distance]) {
      if (candidate > 0n && sameBytes(hashOf(row, candidate, row.prevHash), row.eventHash)) return candidate;
    }
  }
  return null;
}

export function problem(kind: LogProblem['kind'], position: bigint, what: string): LogProblem {
  return { kind, position, message: `position ${position}: ${what}` };
}
