import { createParamDecorator, type ExecutionContext } from '@nestjs/common';
import type { FastifyRequest } from 'fastify';

/**
 * Controller parameter: the body, with the `Idempotency-Key` header as its `idempotencyKey` where the body names none.
 * Unchecked, like every body here: the owner of the command checks it.
 */
export const IdempotentBody = createParamDecorator((_data: unknown, context: ExecutionContext): unknown => {
  const request = context.switchToHttp().getRequest<FastifyRequest>();
  return withIdempotencyKey(request.body, request.headers['idempotency-key']);
});

export function withIdempotencyKey(body: unknown, key: string | string[] | undefined): unknown {
  if (typeof key !== 'string' || typeof body !== 'object' || body === null || Array.isArray(body)) return body;
  return { idempotencyKey: key, ...body };
}
