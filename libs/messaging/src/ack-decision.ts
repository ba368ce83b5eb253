import { DomainError, type ErrorKind } from '#hotbed/contracts';

/**
 * What becomes of a message whose handler failed.
 * retry: again after a pause; too many attempts park the lane.
 * park: dead letter and a parked lane at once; trying again cannot help.
 * settle: nothing to do here (the lane is parked; once resumed it is worked off from the log).
 */
export type AckDecision = 'retry' | 'park' | 'settle';

/** The one table from error to acknowledgement. */
const DECISIONS: Record<ErrorKind | 'Bug', AckDecision> = {
  InvalidInput: 'park',
  Unauthenticated: 'park',
  Forbidden: 'park',
  NotFound: 'park',
  // Somebody else was faster: reload and decide again, a few times.
  Conflict: 'retry',
  IllegalState: 'park',
  TooMany: 'retry',
  Unavailable: 'retry',
  EngineFault: 'park',
  // Not foreseen, so nobody knows whether it passes: counted attempts, then a dead letter.
  Bug: 'retry',
};

export function ackDecision(error: unknown): AckDecision {
  if (!(error instanceof DomainError)) return DECISIONS.Bug;
  if (error.code === 'lane_parked') return 'settle';
  return error.retryable ? 'retry' : DECISIONS[error.kind];
}

const FIRST_DELAY_MS = 100;
const LONGEST_DELAY_MS = 60_000;

/** 100 ms, doubling, at most a minute; an error that knows better is believed. @param attempt from 1 */
export function retryDelayMs(attempt: number, error?: unknown): number {
  const asked = error instanceof DomainError ? error.retryAfterMs : null;
  return Math.min(LONGEST_DELAY_MS, Math.max(asked ?? 0, FIRST_DELAY_MS * 2 ** Math.min(attempt - 1, 16)));
}
