import { setTimeout as delay } from 'node:timers/promises';

const LOOK_MS = 50;

/**
 * Looks again and again until there is something to return. A look that throws ends the wait at once.
 * @param look null, undefined or false = not yet
 * @throws Error naming what was waited for, after the deadline
 */
export async function eventually<T>(
  what: string,
  look: () => T | null | undefined | false | Promise<T | null | undefined | false>,
  deadlineMs = 60_000,
): Promise<T> {
  const deadline = Date.now() + deadlineMs;
  for (;;) {
    const seen = await look();
    if (seen !== null && seen !== undefined && seen !== false) return seen;
    if (Date.now() > deadline) throw new Error(`not within ${deadlineMs} ms: ${what}`);
    await delay(LOOK_MS);
  }
}
