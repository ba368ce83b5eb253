import { isNativeError } from 'node:util/types';
import { DomainError } from '#hotbed/contracts';
import type { EngineFaultCode } from './engine.types';

/** Would the same call succeed later? Busy and full memory or disk pass; the rest is a function of the call. */
const RETRYABLE: Record<EngineFaultCode, boolean> = {
  invalid_argument: false,
  invalid_file: false,
  unsupported_model: false,
  base_mismatch: false,
  not_finite: false,
  out_of_memory: true,
  busy: true,
  cancelled: false,
  disposed: false,
  unsupported_cpu: false,
  io: true,
};

/**
 * Every failure of the engine. The message names the offending field, path, tensor or shape. Thrown by all methods of
 * `Engine`; the adapter is as it was before the call.
 */
export class EngineFault extends DomainError {
  declare readonly code: EngineFaultCode;

  constructor(code: EngineFaultCode, message: string, options: { cause?: unknown } = {}) {
    super('EngineFault', code, message, { ...options, retryable: RETRYABLE[code] });
  }
}

const isEngineFaultCode = (code: unknown): code is EngineFaultCode => typeof code === 'string' && code in RETRYABLE;

/** The addon throws plain errors with a `code`; anything else is a bug and passes unchanged. */
export function toEngineFault(error: unknown): unknown {
  // Not instanceof: the addon's errors may belong to another realm than this module (a vm context).
  if (isNativeError(error) && 'code' in error && isEngineFaultCode(error.code)) {
    return new EngineFault(error.code, error.message);
  }
  return error;
}
