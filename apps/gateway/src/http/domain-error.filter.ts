import { ArgumentsHost, Catch, ExceptionFilter, HttpException, Logger } from '@nestjs/common';
import type { FastifyReply } from 'fastify';
import { DomainError, toWireError, type ErrorKind } from '#hotbed/contracts';

/** The one table from error kind to HTTP status. */
export const HTTP_STATUS: Record<ErrorKind, number> = {
  InvalidInput: 400,
  Unauthenticated: 401,
  Forbidden: 403,
  NotFound: 404,
  Conflict: 409,
  IllegalState: 422,
  TooMany: 429,
  Unavailable: 503,
  EngineFault: 502,
};

/** Kinds that pass with time, where the error itself does not say how much. */
const RETRY_AFTER_MS: Partial<Record<ErrorKind, number>> = { TooMany: 1_000, Unavailable: 1_000 };

/** Every error leaves as `{error: {kind, code, message, fields, ...}}`; a bug leaves its text in the log only. */
@Catch()
export class DomainErrorFilter implements ExceptionFilter {
  private readonly logger = new Logger('http');

  catch(error: unknown, host: ArgumentsHost): void {
    const reply = host.switchToHttp().getResponse<FastifyReply>();
    if (reply.sent || reply.raw.headersSent) {
      reply.raw.destroy();
      return;
    }
    const translated = translate(error);
    if (translated === null) {
      this.logger.error(error instanceof Error ? (error.stack ?? error.message) : String(error));
      void reply.status(500).send({ error: toWireError(error) });
      return;
    }
    const retryAfterMs = translated.retryAfterMs ?? RETRY_AFTER_MS[translated.kind];
    if (retryAfterMs !== undefined) void reply.header('retry-after', Math.max(1, Math.ceil(retryAfterMs / 1000)));
    if (translated.kind === 'Unauthenticated') void reply.header('www-authenticate', 'Bearer');
    void reply.status(HTTP_STATUS[translated.kind]).send({ error: toWireError(translated) });
  }
}

/** Nest's and Fastify's own refusals (no such route, body too large, malformed JSON) in our words; null = a bug. */
function translate(error: unknown): DomainError | null {
  if (error instanceof DomainError) return error;
  const status = statusOf(error);
  if (status === 404) return new DomainError('NotFound', 'route_not_found', messageOf(error));
  if (status === 413) {
    return new DomainError(
      'InvalidInput',
      'body_too_large',
      'the request body is too large; send fewer records at once',
      {
        fields: [{ path: 'body', message: 'too large' }],
      },
    );
  }
  if (status !== null && status >= 400 && status < 500) {
    return new DomainError('InvalidInput', 'invalid_input', messageOf(error), {
      fields: [{ path: 'body', message: messageOf(error) }],
    });
  }
  return null;
}

function statusOf(error: unknown): number | null {
  if (error instanceof HttpException) return error.getStatus();
  if (error instanceof Error && 'statusCode' in error && typeof error.statusCode === 'number') return error.statusCode;
  return null;
}

function messageOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}
