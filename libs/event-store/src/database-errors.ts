import { DomainError, Unavailable } from '#hotbed/contracts';

/** SQLSTATE of a server error, or the system code of a connection error; null for anything else. */
export function errorCode(error: unknown): string | null {
  const code = (error as { code?: unknown } | null)?.code;
  return typeof code === 'string' ? code : null;
}

/** Deadlock and serialisation failures: nothing happened, the same call succeeds later. */
export function isTransient(error: unknown): boolean {
  const code = errorCode(error);
  return code === '40P01' || code === '40001';
}

const CONNECTION_CODES = new Set([
  'ECONNREFUSED',
  'ECONNRESET',
  'EPIPE',
  'ETIMEDOUT',
  'ENOENT',
  'ENOTFOUND',
  'EAI_AGAIN',
]);
const CONNECTION_TEXTS =
  /^(Connection terminated|Client has encountered a connection error|timeout exceeded when trying to connect|Client was closed|Connection ended)/;

/** The connection broke: whether a commit happened is unknown. */
export function isConnectionLoss(error: unknown): boolean {
  const code = errorCode(error);
  if (code !== null && (CONNECTION_CODES.has(code) || code.startsWith('08') || code.startsWith('57P'))) return true;
  return error instanceof Error && CONNECTION_TEXTS.test(error.message);
}

/** What callers see of a database error. Errors that are bugs (bad SQL, broken constraints) pass unchanged. */
export function toDomainError(error: unknown): unknown {
  if (error instanceof DomainError) return error;
  const code = errorCode(error);
  if (isConnectionLoss(error) || code === '53300') {
    return new Unavailable('database_unavailable', 'PostgreSQL does not answer; check that it runs and is reachable', {
      cause: error,
      retryAfterMs: 1000,
    });
  }
  if (code === '53100' || code === '53200') {
    return new Unavailable('database_full', 'PostgreSQL is out of disk space or memory; free some and try again', {
      cause: error,
      retryAfterMs: 5000,
    });
  }
  if (code === '55P03' || isTransient(error)) {
    return new Unavailable('database_busy', 'PostgreSQL is busy with conflicting work; try again', {
      cause: error,
      retryAfterMs: 200,
    });
  }
  return error;
}

export async function withDomainErrors<T>(work: () => Promise<T>): Promise<T> {
  try {
    return await work();
  } catch (error) {
    throw toDomainError(error);
  }
}
