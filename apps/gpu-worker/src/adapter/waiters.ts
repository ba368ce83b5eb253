interface Waiter {
  opIndex: bigint;
  resolve: () => void;
  reject: (reason: Error) => void;
}

/** Those who wait for an adapter to reach an operation. */
export class Waiters {
  private waiting: Waiter[] = [];
  private reachedIndex = 0n;
  private end: { reason: Error } | null = null;

  /** Resolves once `opIndex` was reached. @throws the reason given to `fail`. */
  reached(opIndex: bigint): Promise<void> {
    if (opIndex <= this.reachedIndex) return Promise.resolve();
    if (this.end !== null) return Promise.reject(this.end.reason);
    return new Promise((resolve, reject) => this.waiting.push({ opIndex, resolve, reject }));
  }

  advance(opIndex: bigint): void {
    this.reachedIndex = opIndex;
    const ready = this.waiting.filter((w) => w.opIndex <= opIndex);
    this.waiting = this.waiting.filter((w) => w.opIndex > opIndex);
    for (const waiter of ready) waiter.resolve();
  }

  /** Nothing will be reached any more. */
  fail(reason: Error): void {
    this.end = { reason };
    for (const waiter of this.waiting.splice(0)) waiter.reject(reason);
  }
}
