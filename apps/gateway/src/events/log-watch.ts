/** Injection token. */
export const LOG_WATCH = Symbol('LogWatch');

/** Wakes those who wait for the log to grow. Only a doorbell: whoever wakes looks at the truth again. */
export class LogWatch {
  private readonly waiting = new Set<() => void>();

  /** Resolves at the next append, or after `timeoutMs`. Call it before looking, await it after. */
  next(timeoutMs: number): Promise<void> {
    return new Promise((resolve) => {
      const wake = () => {
        clearTimeout(timer);
        this.waiting.delete(wake);
        resolve();
      };
      const timer = setTimeout(wake, timeoutMs);
      this.waiting.add(wake);
    });
  }

  changed(): void {
    for (const wake of [...this.waiting]) wake();
  }
}
