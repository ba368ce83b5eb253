import { LEAST_MIXED_SHARE, isIsolated, measureIsolation } from './isolation-trials';
import { NUMERICS_LIST_OPTION, numericsListOf } from './numerics';
import { pathText } from './offered-paths';
import { COMMON_OPTIONS, runBench } from './options';

const ISOLATION_BENCH = {
  name: 'bench:isolation',
  what: 'Random adapters on random tiny bases, alone and among up to fifteen neighbours: every bit compared, every numerics id and kernel path in turn.',
  options: {
    ...COMMON_OPTIONS,
    ...NUMERICS_LIST_OPTION,
    trials: { type: 'string', default: '200', help: 'each with a base of its own' },
  },
} as const;

// Exits 0 only if no bit differs, at least half of all steps were mixed, cached prefixes were used, sequences gave up
// their pages, and the built-in mutation was noticed.
runBench(ISOLATION_BENCH, async (options) => {
  const trials = options.whole('trials', 1);
  const report = await measureIsolation(trials, options.whole('seed', 0), {
    budgetS: options.number('budget-s'),
    numerics: await numericsListOf(options),
  });
  if (options.has('json')) {
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
    console.log(`trials by numerics and kernel path of the run alone: ${pathText(report.paths)}`);
    console.log(`the built-in mutation was ${report.mutationDetected ? 'noticed' : 'NOT noticed'}`);
  }
  if (report.trials < trials)
    console.error(`left out: ${trials - report.trials} of ${trials} trials, for want of time`);
  process.exitCode = isIsolated(report) ? 0 : 1;
});
