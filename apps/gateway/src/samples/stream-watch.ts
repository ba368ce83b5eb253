/** Injection token of the watch over the category `rollouts`. */
export const ROLLOUTS_WATCH = Symbol('StreamWatch rollouts');

/** Wakes those who wait for a change of a stream. Only a doorbell: whoever wakes looks at the truth again. */
export class StreamWatch {
  private readonly waiting = new Map<string, Set<() => void>>();

  /** Resolves at the next change of the stream, or after `timeoutMs`. Call it before looking, await it after. */
  next(streamId: string, timeoutMs: number): Promise<void> {
    return new Promise((resolve) => {
      const wake = () => {
        clearTimeout(timer);
        this.forget(streamId, wake);
        resolve();
      };
      const timer = setTimeout(wake, timeoutMs);
      const set = this.waiting.get(streamId) ?? new Set();
      set.add(wake);
      this.waiting.set(streamId, set);
    });
  }

  changed(streamId: string): void {
    for (const wake of [...(this.waiting.get(streamId) ?? [])]) wake();
  }

  private forget(streamId: string, wake: () => void): void {
    const set = this.waiting.get(streamId);
    set?.delete(wake);
    if (set?.size === 0) this.waiting.delete(streamId);
  }
}
