import { setTimeout as delay } from 'node:timers/promises';

/** Polls a condition until it holds. @throws Error naming what was waited for, after the deadline */
export async function until(
  what: string,
  condition: () => boolean | Promise<boolean>,
  deadlineMs = 20_000,
): Promise<void> {
  const deadline = Date.now() + deadlineMs;
  while (!(await condition())) {
    if (Date.now() > deadline) throw new Error(`not in ${deadlineMs} ms: ${what}`);
    await delay(10);
  }
}
