/**
 * The error kinds of the whole platform. Ask first: would the same call succeed later (`retryable`)?
 * HTTP numbers live in the gateway, broker acknowledgements in messaging; nothing here knows either.
 */
export const ERROR_KINDS = [
  'InvalidInput',
  'Unauthenticated',
  'Forbidden',
  'NotFound',
  'Conflict',
  'IllegalState',
  'TooMany',
  'Unavailable',
  'EngineFault',
] as const;
export type ErrorKind = (typeof ERROR_KINDS)[number];

const RETRYABLE: Record<ErrorKind, boolean> = {
  InvalidInput: false,
  Unauthenticated: false,
  Forbidden: false,
  NotFound: false,
  Conflict: false,
  IllegalState: false,
  TooMany: true,
  Unavailable: true,
  EngineFault: false,
};

/** One field that was wrong: where (`records[3].prompt`), and what was expected. */
export interface FieldProblem {
  path: string;
  message: string;
}

export interface DomainErrorOptions {
  cause?: unknown;
  /** For InvalidInput: every wrong field. */
  fields?: readonly FieldProblem[];
  /** Values a caller may act on, for example `{ next: '7' }`. JSON only. */
  context?: Readonly<Record<string, string | number | boolean | null>>;
  /** Overrides the kind's default (EngineFault decides per code). */
  retryable?: boolean;
  /** For TooMany and Unavailable: when to try again. */
  retryAfterMs?: number;
}

/**
 * Every expected failure. `code` is stable and machine-readable (`stream_not_found`); the message tells a person what
 * to do. Anything thrown that is not a DomainError is a bug.
 */
export class DomainError extends Error {
  readonly retryable: boolean;
  readonly fields: readonly FieldProblem[];
  readonly context: Readonly<Record<string, string | number | boolean | null>>;
  readonly retryAfterMs: number | null;

  constructor(
    readonly kind: ErrorKind,
    readonly code: string,
    message: string,
    options: DomainErrorOptions = {},
  ) {
    super(message, options.cause === undefined ? undefined : { cause: options.cause });
    this.name = kind;
    this.retryable = options.retryable ?? RETRYABLE[kind];
    this.fields = options.fields ?? [];
    this.context = options.context ?? {};
    this.retryAfterMs = options.retryAfterMs ?? null;
  }
}

/** A value from outside is wrong. Thrown by every door before anything changes; never retried. */
export class InvalidInput extends DomainError {
  constructor(fields: readonly FieldProblem[], options: DomainErrorOptions = {}) {
    super('InvalidInput', 'invalid_input', fields.map((f) => `${f.path}: ${f.message}`).join('; '), {
      ...options,
      fields,
    });
  }
}

export class NotFound extends DomainError {
  /** @param what for example 'data stream'; @param id what the caller asked for. */
  constructor(what: string, id: string, hint = '') {
    super('NotFound', `${what.replaceAll(' ', '_')}_not_found`, `no ${what} "${id}"${hint ? `; ${hint}` : ''}`, {
      context: { id },
    });
  }
}

/** The writer acted on an old version of a stream. Reload and decide again, a few times. */
export class VersionConflict extends DomainError {
  constructor(streamId: string, expected: string, actual: string) {
    super('Conflict', 'version_conflict', `stream ${streamId} is at version ${actual}, expected ${expected}`, {
      context: { streamId, expected, actual },
    });
  }
}

/** The proposed operation index is not the adapter's next one. Propose `next`. */
export class OpIndexConflict extends DomainError {
  constructor(adapterId: string, proposed: string, next: string) {
    super('Conflict', 'op_index_conflict', `adapter ${adapterId} takes operation ${next} next, not ${proposed}`, {
      context: { adapterId, proposed, next },
    });
  }
}

/** The lease was taken over (or never held): stop, drop hot state, claim again. */
export class LeaseLost extends DomainError {
  constructor(resource: string, epoch: string) {
    super('Conflict', 'lease_lost', `the lease on ${resource} is no longer at epoch ${epoch}`, {
      context: { resource, epoch },
    });
  }
}

/** The same idempotency key came with other content. */
export class IdempotencyConflict extends DomainError {
  constructor(key: string) {
    super('Conflict', 'idempotency_conflict', `idempotency key "${key}" was used before with other content`, {
      context: { key },
    });
  }
}

/** The name is taken within the tenant. */
export class NameTaken extends DomainError {
  constructor(kind: string, name: string) {
    super('Conflict', 'name_taken', `a ${kind} named "${name}" exists already; choose another name`, {
      context: { kind, name },
    });
  }
}

/** A dependency does not answer now. Retried with delay. */
export class Unavailable extends DomainError {
  constructor(code: string, message: string, options: DomainErrorOptions = {}) {
    super('Unavailable', code, message, options);
  }
}
