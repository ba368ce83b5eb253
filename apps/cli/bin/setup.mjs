/**
 * Makes a fresh clone runnable: packages, the native addon, compiled TypeScript. Each step runs only when its inputs
 * changed, prints one line, and shows its output only when it fails. Plain Node, since nothing is installed yet.
 */
import { spawnSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import { existsSync, readFileSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';

export const root = join(dirname(fileURLToPath(import.meta.url)), '..', '..', '..');

const MIN_NODE_MAJOR = 20;

function fail(message) {
  console.error(message);
  process.exit(1);
}

function run(label, command, args, { cwd = root } = {}) {
  const started = Date.now();
  const result = spawnSync(command, args, { cwd, encoding: 'utf8', maxBuffer: 1 << 28 });
  if (result.status !== 0) {
    process.stderr.write(`${result.stdout ?? ''}${result.stderr ?? ''}`);
    fail(`${label} failed (${result.error?.message ?? `exit ${result.status}`}): ${command} ${args.join(' ')}`);
  }
  console.error(`${label} ... ${((Date.now() - started) / 1000).toFixed(1)} s`);
}

function installPackages() {
  const lock = createHash('sha256')
    .update(readFileSync(join(root, 'package-lock.json')))
    .digest('hex');
  const stamp = join(root, 'node_modules', '.hotbed-lock-digest');
  if (existsSync(stamp) && readFileSync(stamp, 'utf8') === lock) return;
  run('installing packages', 'npm', ['ci', '--no-audit', '--no-fund', '--loglevel=error']);
  writeFileSync(stamp, lock);
}

/** Brings the tree to a state in which every command of the project runs. Exits with one clear line when it cannot. */
export function setUp() {
  const major = Number(process.versions.node.split('.')[0]);
  if (major < MIN_NODE_MAJOR) fail(`hotbed needs Node ${MIN_NODE_MAJOR} or newer; this is ${process.version}`);
  if (process.platform !== 'linux' || process.arch !== 'x64') {
    fail(`hotbed runs on Linux x64; this is ${process.platform} ${process.arch}`);
  }
  installPackages();
  run('building the engine', process.execPath, [join('native', 'build.mjs')]);
  run('compiling', process.execPath, [join('node_modules', 'typescript', 'bin', 'tsc'), '-p', 'tsconfig.json']);
}

if (process.argv[1] === fileURLToPath(import.meta.url)) setUp();
