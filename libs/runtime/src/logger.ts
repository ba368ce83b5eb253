import type { LoggerService } from '@nestjs/common';
import { pino, type DestinationStream, type Logger } from 'pino';

export type { Logger } from 'pino';

export const LOG_LEVELS = ['fatal', 'error', 'warn', 'info', 'debug', 'trace', 'silent'] as const;
export type LogLevel = (typeof LOG_LEVELS)[number];

/** Values under these names never reach a log. */
const SECRET_PATHS = ['password', 'secret', 'apiKey', 'authorization', 'url', 'ownerUrl'].flatMap((name) => [
  name,
  `*.${name}`,
]);

/** JSON lines, one object per event; errors under `err` with their causes. */
export function createLogger(options: { name: string; level?: LogLevel; destination?: DestinationStream }): Logger {
  const settings = {
    name: options.name,
    level: options.level ?? 'info',
    timestamp: pino.stdTimeFunctions.isoTime,
    redact: { paths: SECRET_PATHS, censor: censorUrl },
    serializers: { err: pino.stdSerializers.errWithCause },
  };
  return options.destination === undefined ? pino(settings) : pino(settings, options.destination);
}

/** A log that keeps nothing, for tests and tools. */
export function silentLogger(): Logger {
  return pino({ level: 'silent' });
}

/** Addresses stay readable, their credentials do not; everything else under a secret name is hidden whole. */
function censorUrl(value: unknown, path: string[]): unknown {
  if (!path.at(-1)?.toLowerCase().endsWith('url') || typeof value !== 'string') return '[hidden]';
  return value.replace(/\/\/[^@/]*@/, '//[hidden]@');
}

/** Nest's log lines as pino lines: the context becomes a field, a stack becomes `stack`. */
export function nestLogger(logger: Logger): LoggerService {
  const write =
    (level: 'info' | 'error' | 'warn' | 'debug' | 'trace' | 'fatal') =>
    (message: unknown, ...rest: unknown[]): void => {
      const texts = rest.filter((part): part is string => typeof part === 'string');
      const context = texts.at(-1);
      const fields: Record<string, unknown> = { context };
      if (level === 'error' && texts.length > 1) fields['stack'] = texts[0];
      if (message instanceof Error) logger[level]({ ...fields, err: message }, message.message);
      else logger[level](fields, typeof message === 'string' ? message : JSON.stringify(message));
    };
  return {
    // Nest reports every module and route that it wires at `log`: too much for an operator's info level.
    log: write('debug'),
    error: write('error'),
    warn: write('warn'),
    debug: write('debug'),
    verbose: write('trace'),
    fatal: write('fatal'),
  };
}
