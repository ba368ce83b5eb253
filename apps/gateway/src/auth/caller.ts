import { createParamDecorator, ExecutionContext } from '@nestjs/common';
import type { FastifyRequest } from 'fastify';

/** Who makes a request: taken from its API key, never from its body. */
export interface Caller {
  keyId: string;
  tenantId: string;
  tenantName: string;
  role: 'admin' | 'member';
}

export interface AuthenticatedRequest extends FastifyRequest {
  caller?: Caller;
}

/** Controller parameter: the caller that the guard found. */
export const FromCaller = createParamDecorator((_data: unknown, context: ExecutionContext): Caller => {
  const { caller } = context.switchToHttp().getRequest<AuthenticatedRequest>();
  if (caller === undefined) throw new Error('a route without the API key guard asked for its caller');
  return caller;
});
