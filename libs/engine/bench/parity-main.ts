import { pathText } from './offered-paths';
import { runBench } from './options';
import { PARITY_BENCH, benchParity, isExact } from './parity';

// Exits 0 only if no token differs.
runBench(PARITY_BENCH, async (options) => {
  const report = await benchParity(options);
  if (options.has('json')) {
    console.log(JSON.stringify(report));
  } else {
    const { tiny, large, paths } = report;
    const line = ({ tokens, differing, maxDifference }: typeof tiny) =>
      `${tokens} tokens, ${differing} differ, by at most ${maxDifference}`;
    console.log(`${tiny.bases} tiny bases: ${line(tiny)}`);
    console.log(`  tokens by numerics and kernel path: ${pathText(paths)}`);
    console.log(`${report.model}: ${line(large)}`);
    console.log(`${report.seconds} s`);
    console.log(report.leftOut.length === 0 ? 'nothing was left out' : `left out: ${report.leftOut.join('; ')}`);
  }
  process.exitCode = isExact(report) ? 0 : 1;
});
