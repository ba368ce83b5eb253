import { z } from 'zod';
import { DomainError, ERROR_KINDS } from './errors';

/** How a DomainError travels in replies (NATS request/reply, server-sent events). */
export const wireErrorSchema = z.object({
  kind: z.enum(ERROR_KINDS).or(z.literal('Bug')),
  code: z.string(),
  message: z.string(),
  retryable: z.boolean(),
  fields: z.array(z.object({ path: z.string(), message: z.string() })).default([]),
  context: z.record(z.string(), z.union([z.string(), z.number(), z.boolean(), z.null()])).default({}),
  retryAfterMs: z.number().nullable().default(null),
});
export type WireError = z.infer<typeof wireErrorSchema>;

/** Anything that is no DomainError is a bug: its text stays in the log, the wire says only that it happened. */
export function toWireError(error: unknown): WireError {
  if (!(error instanceof DomainError)) {
    return {
      kind: 'Bug',
      code: 'internal',
      message: 'internal error; the server log has the details',
      retryable: false,
      fields: [],
      context: {},
      retryAfterMs: null,
    };
  }
  return {
    kind: error.kind,
    code: error.code,
    message: error.message,
    retryable: error.retryable,
    fields: [...error.fields],
    context: { ...error.context },
    retryAfterMs: error.retryAfterMs,
  };
}

export function fromWireError(wire: WireError): Error {
  if (wire.kind === 'Bug') return new Error(`${wire.code}: ${wire.message}`);
  return new DomainError(wire.kind, wire.code, wire.message, {
    fields: wire.fields,
    context: wire.context,
    retryable: wire.retryable,
    ...(wire.retryAfterMs === null ? {} : { retryAfterMs: wire.retryAfterMs }),
  });
}
