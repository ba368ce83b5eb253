import pg from 'pg';
import { APP_ROLE } from '../../../migrations';

const INT8_OID = 20;

/** int8 arrives as bigint: positions and versions must never become lossy numbers. */
const types: pg.CustomTypesConfig = {
  getTypeParser(oid: number, format?: 'text' | 'binary'): (text: string) => unknown {
    if (oid === INT8_OID && format !== 'binary') return BigInt;
    return pg.types.getTypeParser(oid, format) as (text: string) => unknown;
  },
};

/** Sessions run as the application role: appending through the function, reading, and their own rows; nothing else. */
function sessionConfig(databaseUrl: string, applicationName: string): pg.ClientConfig {
  return {
    connectionString: databaseUrl,
    types,
    application_name: applicationName,
    keepAlive: true,
    keepAliveInitialDelayMillis: 5000,
    connectionTimeoutMillis: 10_000,
    // The server, too, notices a client that vanished, and frees its locks.
    options: `-c role=${APP_ROLE} -c tcp_keepalives_idle=5 -c tcp_keepalives_interval=2 -c tcp_keepalives_count=3`,
  };
}

/** @param options.onError hears of idle connections that broke; the pool replaces them by itself. */
export function createPool(
  databaseUrl: string,
  options: { applicationName: string; max?: number; onError?: (error: Error) => void },
): pg.Pool {
  const pool = new pg.Pool({ ...sessionConfig(databaseUrl, options.applicationName), max: options.max ?? 8 });
  pool.on('error', (error) => options.onError?.(error));
  return pool;
}

/** A connection outside every pool, for what lives as long as the session: advisory locks, LISTEN. */
export function dedicatedClient(databaseUrl: string, applicationName: string): pg.Client {
  return new pg.Client(sessionConfig(databaseUrl, applicationName));
}
