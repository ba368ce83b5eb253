/**
 * `npm test`: sets up what is missing, runs every suite, prints failures as they come, and ends with one line
 * `N passed, N failed[, N skipped]` over all of them.
 */
import { availableParallelism } from 'node:os';
import { spawnSync } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { root, setUp } from '../apps/cli/bin/setup.mjs';

const total = { passed: 0, failed: 0, skipped: 0 };

function add(name, { passed, failed, skipped }) {
  console.log(`${name}: ${passed} passed, ${failed} failed, ${skipped} skipped`);
  total.passed += passed;
  total.failed += failed;
  total.skipped += skipped;
}

/** The native runner's last line is `N passed, N failed[, N skipped]`. */
function runNative() {
  const result = spawnSync('make', ['-s', `-j${availableParallelism()}`, '-C', 'native', 'test'], {
    cwd: root,
    encoding: 'utf8',
    maxBuffer: 1 << 28,
  });
  const counts = /(\d+) passed, (\d+) failed(?:, (\d+) skipped)?\s*$/.exec(result.stdout ?? '');
  if (result.status !== 0 || counts === null) process.stdout.write(`${result.stdout ?? ''}${result.stderr ?? ''}`);
  if (counts === null) return add('native', { passed: 0, failed: 1, skipped: 0 });
  add('native', { passed: Number(counts[1]), failed: Number(counts[2]), skipped: Number(counts[3] ?? 0) });
}

function runJest(project, workers) {
  const folder = mkdtempSync(join(tmpdir(), 'hotbed-test-'));
  const report = join(folder, 'report.json');
  const jest = join('node_modules', 'jest', 'bin', 'jest.js');
  const options = ['--selectProjects', project, '--maxWorkers', String(workers), '--json', '--outputFile', report];
  const result = spawnSync(process.execPath, [jest, ...options, ...process.argv.slice(2)], {
    cwd: root,
    stdio: ['ignore', 'ignore', 'inherit'],
  });
  try {
    const { numPassedTests, numFailedTests, numPendingTests, numTodoTests, testResults } = JSON.parse(
      readFileSync(report, 'utf8'),
    );
    // A suite that fails to load has no tests to count, and must not pass for that.
    const broken = testResults.filter((t) => t.status === 'failed' && t.assertionResults.length === 0).length;
    add(project, {
      passed: numPassedTests,
      failed: numFailedTests + broken,
      skipped: numPendingTests + numTodoTests,
    });
  } catch {
    console.log(`${project}: the runner ended without a report (exit ${result.status})`);
    total.failed += 1;
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}

setUp();
runNative();
runJest('unit', 2);
runJest('int', 2);
runJest('e2e', 1);

const skipped = total.skipped > 0 ? `, ${total.skipped} skipped` : '';
console.log(`${total.passed} passed, ${total.failed} failed${skipped}`);
process.exit(total.failed === 0 && total.passed > 0 ? 0 : 1);
