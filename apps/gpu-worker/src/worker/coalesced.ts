/**
 * Runs a task whenever it was asked for, one at a time: requests that come while it runs are answered by one more run.
 * `minimumGapMs` bounds how often it runs under a storm of requests.
 */
export class Coalesced {
  private asked = false;
  private running: Promise<void> | null = null;
  private closed = false;

  constructor(
    private readonly task: () => Promise<void>,
    private readonly minimumGapMs: number,
  ) {}

  ask(): void {
    this.asked = true;
    if (this.running !== null || this.closed) return;
    this.running = this.run().finally(() => {
      this.running = null;
      if (this.asked) this.ask();
    });
  }

  /** No run begins any more; resolves when the one at hand is over. */
  async close(): Promise<void> {
    this.closed = true;
    await this.running;
  }

  private async run(): Promise<void> {
    while (this.asked && !this.closed) {
      this.asked = false;
      await this.task();
      if (this.minimumGapMs > 0) await new Promise((resolve) => setTimeout(resolve, this.minimumGapMs));
    }
  }
}
