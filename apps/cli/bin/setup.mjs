/**
 * Makes a fresh clone runnable: packages, the native addon, compiled TypeScript. Each step runs only when its inputs
 * changed, prints one line, and shows its output only when it fails. Plain Node, since nothing is installed yet.
 */
import { spawnSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import { existsSync, mkdirSync, readFileSync, readdirSync, rmSync, statSync, writeFileSync } from 'node:fs';
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

/** Runs a step unless a stamp says that it was run on the same inputs; a failed step leaves no stamp. */
function unlessDone(stampFile, inputs, step) {
  const stamp = join(root, stampFile);
  if (existsSync(stamp) && readFileSync(stamp, 'utf8') === inputs) return;
  step();
  mkdirSync(dirname(stamp), { recursive: true });
  writeFileSync(stamp, inputs);
}

/** Names, sizes and times of the files below the folders: changes when one of them may have. */
function inputsOf(folders, files, extensions) {
  const hash = createHash('sha256').update(process.version);
  const visit = (path) => {
    const stat = statSync(join(root, path));
    if (stat.isFile()) return hash.update(`${path} ${stat.size} ${stat.mtimeMs}\n`);
    for (const entry of readdirSync(join(root, path), { withFileTypes: true })) {
      if (['build', 'node_modules', 'dist', 'fixtures'].includes(entry.name)) continue;
      if (entry.isDirectory() || extensions.some((extension) => entry.name.endsWith(extension))) {
        visit(join(path, entry.name));
      }
    }
  };
  [...folders, ...files].filter((path) => existsSync(join(root, path))).forEach(visit);
  return hash.digest('hex');
}

function installPackages() {
  const lock = createHash('sha256')
    .update(readFileSync(join(root, 'package-lock.json')))
    .digest('hex');
  unlessDone(join('node_modules', '.hotbed-lock-digest'), lock, () =>
    run('installing packages', 'npm', ['ci', '--no-audit', '--no-fund', '--loglevel=error']),
  );
}

function buildEngine() {
  const stamp = join('native', 'build', '.inputs');
  if (!existsSync(join(root, 'native', 'build', 'Release', 'hotbed.node'))) rmSync(join(root, stamp), { force: true });
  unlessDone(stamp, inputsOf(['native'], ['package-lock.json'], ['.cc', '.h', '.gyp', '.gypi', '.mjs']), () =>
    run('building the engine', process.execPath, [join('native', 'build.mjs')]),
  );
}

function compile() {
  const folders = ['apps', 'libs', 'migrations', 'test', 'native'];
  unlessDone(join('dist', '.inputs'), inputsOf(folders, ['tsconfig.json', 'package-lock.json'], ['.ts']), () =>
    run('compiling', process.execPath, [join('node_modules', 'typescript', 'bin', 'tsc'), '-p', 'tsconfig.json']),
  );
}

/** Whether set-up was run here once: enough for commands that only talk to a running platform. */
export function isSetUp() {
  return existsSync(join(root, 'dist', '.inputs')) && existsSync(join(root, 'node_modules', '.hotbed-lock-digest'));
}

/** Brings the tree to a state in which every command of the project runs. Exits with one clear line when it cannot. */
export function setUp() {
  const major = Number(process.versions.node.split('.')[0]);
  if (major < MIN_NODE_MAJOR) fail(`hotbed needs Node ${MIN_NODE_MAJOR} or newer; this is ${process.version}`);
  if (process.platform !== 'linux' || process.arch !== 'x64') {
    fail(`hotbed runs on Linux x64; this is ${process.platform} ${process.arch}`);
  }
  installPackages();
  buildEngine();
  compile();
}

if (process.argv[1] === fileURLToPath(import.meta.url)) setUp();
