import { runBench } from './options';
import { benchThroughput, throughputOptions } from './throughput';
import { throughputText } from './throughput-text';

// Exits 0 only if every adapter's bytes were equal across all N.
runBench(async (args) => {
  const options = throughputOptions(args);
  const report = await benchThroughput(options);
  console.log(options.has('json') ? JSON.stringify(report) : throughputText(report));
  process.exitCode = report.equalBytes ? 0 : 1;
});
