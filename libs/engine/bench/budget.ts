/** Shares a benchmark's time among its parts: a part may use what earlier ones left. */
export class Budget {
  private readonly started = Date.now();
  private given = 0;

  /** @param seconds of the whole benchmark; the parts' weights are relative to their sum */
  constructor(
    private readonly seconds: number,
    private readonly weights: Record<string, number>,
  ) {}

  /** The moment (ms since the epoch) at which the part ends; parts are asked for in the order in which they run. */
  deadlineOf(part: string): number {
    this.given += this.weights[part] ?? 0;
    const all = Object.values(this.weights).reduce((sum, weight) => sum + weight, 0);
    return this.started + (1000 * this.seconds * this.given) / all;
  }

  secondsUsed(): number {
    return (Date.now() - this.started) / 1000;
  }
}
