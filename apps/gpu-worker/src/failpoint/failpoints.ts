/** Places where a test may end the worker as `kill -9` would. The order is that of an operation's way. */
export const FAILPOINTS = [
  'after-lease-claim',
  'mid-recovery',
  'before-apply',
  'mid-backward',
  'mid-optim-step',
  'after-apply',
  'after-snapshot',
  'after-blob-rename',
  'before-commit',
  'after-commit',
  'mid-sample',
  'before-rollouts-commit',
  'after-rollouts-commit',
] as const;
export type FailpointName = (typeof FAILPOINTS)[number];

/** For the points inside a computation: lets the engine's own thread run so long before the end, milliseconds. */
const INSIDE_COMPUTATION_MS = 0.3;

/** Ends this process with SIGKILL at the n-th hit of a named place. Armed only by the configuration of a test. */
export class Failpoints {
  private readonly hits = new Map<FailpointName, number>();

  constructor(private readonly fatalHits: ReadonlyMap<FailpointName, number> = new Map()) {}

  hit(name: FailpointName): void {
    const hit = (this.hits.get(name) ?? 0) + 1;
    this.hits.set(name, hit);
    if (hit !== this.fatalHits.get(name)) return;
    if (name.startsWith('mid-')) spin(INSIDE_COMPUTATION_MS);
    process.kill(process.pid, 'SIGKILL');
    // The signal may need a moment; nothing may happen in it.
    for (;;) spin(1000);
  }
}

/** @param text `name:hit`, comma-separated, for example `after-blob-rename:3`. @throws TypeError naming the part. */
export function parseFailpoints(text: string): ReadonlyMap<FailpointName, number> {
  const fatalHits = new Map<FailpointName, number>();
  for (const part of text.split(',').filter((p) => p !== '')) {
    const [name, hit = '1'] = part.split(':');
    const known = FAILPOINTS.find((f) => f === name);
    if (known === undefined) throw new TypeError(`unknown failpoint "${part}"; known are ${FAILPOINTS.join(', ')}`);
    if (!/^[1-9][0-9]*$/.test(hit)) throw new TypeError(`failpoint "${part}": expected a positive hit count`);
    fatalHits.set(known, Number(hit));
  }
  return fatalHits;
}

function spin(milliseconds: number): void {
  const end = performance.now() + milliseconds;
  while (performance.now() < end);
}
