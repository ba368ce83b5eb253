import { setTimeout as pause } from 'node:timers/promises';
import { DomainError } from '#hotbed/contracts';

const FIRST_PAUSE_MS = 20;
const LONGEST_PAUSE_MS = 1000;

/**
 * Makes the call again, later and later, for as long as the engine refuses it as `busy`: how full an engine is, is
 * nobody's outcome. Anything else passes.
 */
export async function whileBusy<T>(call: () => Promise<T>): Promise<T> {
  for (let pauseMs = FIRST_PAUSE_MS; ; pauseMs = Math.min(2 * pauseMs, LONGEST_PAUSE_MS)) {
    try {
      return await call();
    } catch (error) {
      if (!(error instanceof DomainError) || error.code !== 'busy') throw error;
      await pause(pauseMs);
    }
  }
}
