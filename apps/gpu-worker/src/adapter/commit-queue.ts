/**
 * Commits of one adapter: one at a time, in order, while the next operation is already being computed. After a failure
 * nothing more is committed; the first failure is thrown to whoever adds or waits next.
 */
export class CommitQueue {
  private tail: Promise<void> = Promise.resolve();
  private readonly inFlight: Promise<void>[] = [];
  private failure: { error: unknown } | null = null;

  /** @param depth most commits waiting or in flight; more would only lengthen what a failure throws away. */
  constructor(private readonly depth: number) {}

  /** Queues a commit; waits only while the queue is full. @throws the first failure of an earlier commit. */
  async add(commit: () => Promise<void>): Promise<void> {
    this.throwFailure();
    this.tail = this.tail.then(() => this.run(commit));
    this.inFlight.push(this.tail);
    while (this.inFlight.length >= this.depth) await this.inFlight[0];
    this.throwFailure();
  }

  /** Waits until everything queued is committed. @throws the first failure. */
  async drain(): Promise<void> {
    await this.settled();
    this.throwFailure();
  }

  /** Waits until nothing is in flight any more, whatever came of it. */
  async settled(): Promise<void> {
    await this.tail;
  }

  private async run(commit: () => Promise<void>): Promise<void> {
    try {
      if (this.failure === null) await commit();
    } catch (error) {
      this.failure = { error };
    } finally {
      void this.inFlight.shift();
    }
  }

  private throwFailure(): void {
    if (this.failure !== null) throw this.failure.error;
  }
}
