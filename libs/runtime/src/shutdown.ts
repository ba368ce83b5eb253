import type { Logger } from './logger';

export interface ShutdownStep {
  name: string;
  run: () => void | Promise<void>;
}

/** A step of the shutdown did not end in its time; the next steps were still run. */
export class ShutdownIncomplete extends Error {
  constructor(readonly failed: readonly string[]) {
    super(`shutdown incomplete: ${failed.join('; ')}`);
    this.name = 'ShutdownIncomplete';
  }
}

/**
 * Runs the steps in order, each even if one before it failed, all within `timeoutMs` together.
 * @throws ShutdownIncomplete naming every step that failed or ran out of time.
 */
export async function shutDown(steps: readonly ShutdownStep[], timeoutMs: number, logger: Logger): Promise<void> {
  const deadline = Date.now() + timeoutMs;
  const failed: string[] = [];
  for (const step of steps) {
    try {
      await within(Promise.resolve(step.run()), Math.max(0, deadline - Date.now()), step.name);
    } catch (error) {
      logger.error({ err: error, step: step.name }, 'shutdown step failed');
      failed.push(`${step.name}: ${error instanceof Error ? error.message : String(error)}`);
    }
  }
  if (failed.length > 0) throw new ShutdownIncomplete(failed);
}

/** The promise's result, or an error once `timeoutMs` have passed. The work itself is not cancelled. */
export async function within<T>(work: Promise<T>, timeoutMs: number, what: string): Promise<T> {
  let timer: NodeJS.Timeout | undefined;
  const late = new Promise<never>((_, reject) => {
    timer = setTimeout(() => reject(new Error(`${what} did not end within ${timeoutMs} ms`)), timeoutMs);
  });
  try {
    return await Promise.race([work, late]);
  } finally {
    clearTimeout(timer);
  }
}
