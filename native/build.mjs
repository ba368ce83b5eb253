// Builds the addon (native/build/Release/hotbed.node) with node-gyp: incremental, silent unless it fails.
//
//   node native/build.mjs
//
// node-gyp compiles against Node's headers. It downloads them unless it is pointed at a folder that has them: the
// running Node's own prefix, or the system's.
import { spawnSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import { existsSync, linkSync, mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { availableParallelism } from 'node:os';
import { delimiter, dirname, join, resolve } from 'node:path';
import { setTimeout as pause } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { sources } from './sources.mjs';

const here = dirname(fileURLToPath(import.meta.url));
const nodeGyp = createRequire(import.meta.url).resolve('node-gyp/bin/node-gyp.js');

/** Headers must be of this very Node, or the addon would be built for another. */
function hasHeaders(prefix) {
  const header = join(prefix, 'include', 'node', 'node_version.h');
  if (!existsSync(header)) return false;
  const text = readFileSync(header, 'utf8');
  const part = (name) => new RegExp(`#define NODE_${name}_VERSION (\\d+)`).exec(text)?.[1];
  return `${part('MAJOR')}.${part('MINOR')}.${part('PATCH')}` === process.versions.node;
}

function headerArguments() {
  const prefix = [resolve(process.execPath, '..', '..'), '/usr', '/usr/local'].find(hasHeaders);
  if (prefix !== undefined) return [`--nodedir=${prefix}`];
  console.log(`Node ${process.versions.node} came without its headers: node-gyp downloads them once.`);
  return [];
}

/** What decides the makefiles; as long as it is the same, only make runs. */
function configurationKey(headers) {
  const description = [process.version, process.execPath, headers, sources()];
  const hash = createHash('sha256').update(JSON.stringify(description));
  for (const name of ['binding.gyp', 'kernels.gypi']) hash.update(readFileSync(join(here, name)));
  return hash.digest('hex');
}

// binding.gyp runs `node`: let it find this one.
const environment = { ...process.env, PATH: `${dirname(process.execPath)}${delimiter}${process.env.PATH ?? ''}` };

function run(command, headers) {
  const result = spawnSync(
    process.execPath,
    [nodeGyp, command, '--directory', here, '--loglevel=error', `--jobs=${availableParallelism()}`, ...headers],
    { encoding: 'utf8', env: environment, maxBuffer: 1 << 28 },
  );
  if (result.status === 0) return;
  process.stderr.write(`${result.stdout ?? ''}${result.stderr ?? ''}`);
  console.error(`The native addon could not be built (node-gyp ${command}). It needs g++, make and python3.`);
  process.exit(1);
}

const buildFolder = join(here, 'build');

/** Two builds at once would write the same files: the second waits, unless the first has died. */
async function lock() {
  const path = join(buildFolder, 'lock');
  const mine = `${path}.${process.pid}`;
  mkdirSync(buildFolder, { recursive: true });
  writeFileSync(mine, String(process.pid));
  for (;;) {
    try {
      linkSync(mine, path); // appears with its content, or fails
      process.on('exit', () => rmSync(path, { force: true }));
      rmSync(mine);
      return;
    } catch (error) {
      if (error.code !== 'EEXIST') throw error;
      if (!isRunning(Number(readIfPresent(path)))) rmSync(path, { force: true });
      else await pause(200);
    }
  }
}

function isRunning(pid) {
  try {
    return pid > 0 && process.kill(pid, 0);
  } catch (error) {
    return error.code === 'EPERM';
  }
}

const readIfPresent = (path) => (existsSync(path) ? readFileSync(path, 'utf8') : '');

await lock();
const headers = headerArguments();
const stamp = join(buildFolder, 'configured');
const key = configurationKey(headers);
if (readIfPresent(stamp) !== key) {
  run('configure', headers);
  writeFileSync(stamp, key);
}
run('build', headers);
