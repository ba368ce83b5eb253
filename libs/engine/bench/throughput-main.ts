import { runBench } from './options';
import { THROUGHPUT_BENCH, benchThroughput } from './throughput';
import { throughputText } from './throughput-text';

// Exits 0 only if every adapter's bytes were equal across all N.
runBench(THROUGHPUT_BENCH, async (options) => {
  const report = await benchThroughput(options);
  console.log(options.has('json') ? JSON.stringify(report) : throughputText(report));
  process.exitCode = report.equalBytes ? 0 : 1;
});
