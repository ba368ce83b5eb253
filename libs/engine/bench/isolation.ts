import { parseArgs } from 'node:util';
import { LEAST_MIXED_SHARE, isIsolated, measureIsolation } from './isolation-trials';

// npm run -s bench:isolation -- [--trials N] [--seed N] [--json]
// Exits 0 only if no bit differs, at least half of all steps were mixed, cached prefixes were used, sequences gave up
// their pages, and the built-in mutation was noticed.

async function main(): Promise<void> {
  const { values } = parseArgs({
    options: {
      trials: { type: 'string', default: '200' },
      seed: { type: 'string', default: '1' },
      json: { type: 'boolean', default: false },
    },
  });
  const report = await measureIsolation(wholeNumber('trials', values.trials), wholeNumber('seed', values.seed));
  if (values.json) {
    console.log(JSON.stringify(report));
  } else {
    const percent = (value: number) => `${(100 * value).toFixed(1)} %`;
    console.log(`${report.trials} trials, ${report.differingBits} differing bits`);
    console.log(
      `mixed decode steps ${percent(report.mixedDecodeSteps)}, mixed training passes ${percent(report.mixedTrainPasses)} (at least ${percent(LEAST_MIXED_SHARE)})`,
    );
    console.log(`${report.meanAdaptersPerPass} adapters per training pass on average`);
    console.log(
      `${report.prefixHitTokens} positions from the prefix cache, ${report.prefixEvictions} of its blocks given up, ${report.preemptions} sequences gave up their pages`,
    );
    console.log(`the built-in mutation was ${report.mutationDetected ? 'noticed' : 'NOT noticed'}`);
  }
  process.exitCode = isIsolated(report) ? 0 : 1;
}

function wholeNumber(name: string, text: string): number {
  const value = Number(text);
  if (!Number.isSafeInteger(value) || value < 1) throw new Error(`--${name}: expected a whole number of at least 1`);
  return value;
}

main().catch((error: unknown) => {
  console.error(error instanceof Error ? error.message : error);
  process.exitCode = 2;
});
