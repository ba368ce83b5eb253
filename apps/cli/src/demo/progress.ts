import type { ExperimentView } from '#hotbed/contracts';
import { sparkline } from '../terminal/sparkline';

const NAME_WIDTH = 14;
const CURVE_WIDTH = 40;
const PLAIN_EVERY_MS = 5_000;

/** One line per tenant: rewritten in place on a terminal, printed now and then elsewhere. */
export class Progress {
  private readonly startedAtMs = Date.now();
  private lines = 0;
  private printedAtMs = 0;

  constructor(
    private readonly names: readonly string[],
    private readonly out: NodeJS.WriteStream = process.stderr,
  ) {}

  show(views: readonly ExperimentView[], last = false): void {
    const now = Date.now();
    if (!this.out.isTTY && !last && now - this.printedAtMs < PLAIN_EVERY_MS) return;
    this.printedAtMs = now;
    if (this.out.isTTY && this.lines > 0) this.out.write(`\u001b[${this.lines}A`);
    const seconds = (now - this.startedAtMs) / 1000;
    const text = views.map(
      (view, i) => `${this.out.isTTY ? '\u001b[2K' : ''}${this.line(this.names[i] ?? '', view, seconds)}\n`,
    );
    this.out.write(this.out.isTTY ? text.join('') : `${text.join('')}\n`);
    this.lines = views.length;
  }

  private line(name: string, view: ExperimentView, seconds: number): string {
    const rewards = view.steps.map((step) => step.rewardMean);
    const tokens = view.steps.reduce((sum, step) => sum + step.sampledTokens, 0);
    return [
      name.padEnd(NAME_WIDTH),
      `step ${String(view.steps.length).padStart(3)}/${view.stepsPerRun}`,
      `reward ${(rewards.at(-1) ?? 0).toFixed(2)}`,
      sparkline(rewards, CURVE_WIDTH).padEnd(CURVE_WIDTH),
      `${Math.round(tokens / Math.max(seconds, 0.001))} tokens/s`,
      view.stalled === null ? '' : `(${view.stalled})`,
    ].join('  ');
  }
}
