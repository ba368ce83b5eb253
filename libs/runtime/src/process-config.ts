import { z } from 'zod';
import { LOG_LEVELS } from './logger';

/** A whole number from a variable, within limits. */
export const integerVariable = (min: number, max: number) =>
  z
    .string()
    .regex(/^-?[0-9]+$/, `expected a whole number from ${min} to ${max}`)
    .transform(Number)
    .pipe(z.number().int().min(min).max(max));

/** What every process reads, whichever apps it hosts. */
export const processConfigShape = {
  HOTBED_LOG_LEVEL: z.enum(LOG_LEVELS).default('info'),
  HOTBED_OPS_HOST: z.string().default('127.0.0.1'),
  HOTBED_OPS_PORT: integerVariable(1, 65535).optional(),
  HOTBED_SHUTDOWN_TIMEOUT_MS: integerVariable(100, 600_000).default(20_000),
};

interface ProcessValues {
  HOTBED_LOG_LEVEL: (typeof LOG_LEVELS)[number];
  HOTBED_OPS_HOST: string;
  HOTBED_OPS_PORT?: number | undefined;
  HOTBED_SHUTDOWN_TIMEOUT_MS: number;
}

export interface ProcessConfig {
  logLevel: (typeof LOG_LEVELS)[number];
  opsHost: string;
  /** null = no operations server. */
  opsPort: number | null;
  shutdownTimeoutMs: number;
}

export function toProcessConfig(values: ProcessValues): ProcessConfig {
  return {
    logLevel: values.HOTBED_LOG_LEVEL,
    opsHost: values.HOTBED_OPS_HOST,
    opsPort: values.HOTBED_OPS_PORT ?? null,
    shutdownTimeoutMs: values.HOTBED_SHUTDOWN_TIMEOUT_MS,
  };
}
