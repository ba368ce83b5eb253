/** Delay before attempt 1, 2, 3, ...: doubles from 50 ms to 10 s. */
export function retryDelayMs(attempt: number): number {
  return Math.min(10_000, 50 * 2 ** Math.min(attempt - 1, 20));
}

/** Waits, but not beyond the signal. */
export function pause(milliseconds: number, signal: AbortSignal): Promise<void> {
  if (signal.aborted) return Promise.resolve();
  return new Promise((resolve) => {
    const end = (): void => {
      clearTimeout(timer);
      signal.removeEventListener('abort', end);
      resolve();
    };
    const timer = setTimeout(end, milliseconds);
    signal.addEventListener('abort', end);
  });
}
