import { execFile, spawn } from 'node:child_process';
import { existsSync, mkdirSync, readFileSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { promisify } from 'node:util';
import { loadOrCreateSecret } from './data-folder';
import { freePort } from './free-port';
import { chown, placePostgres, type PostgresPlace } from './postgres-place';
import { lastLines, startSupervised, type SupervisedProcess } from './supervised-process';

export interface EmbeddedPostgresOptions {
  /** Folder of this server, for example DataFolder.postgres. Used again on the next start. */
  dataDir: string;
  /** 0 or absent = any free one. */
  port?: number;
  /** Off only in tests: a crash of the machine may then lose commits. */
  fsync?: boolean;
  /** `max_connections`; default 100. */
  maxConnections?: number;
  /** Further settings, for example `{ log_min_duration_statement: '100' }`. */
  settings?: Readonly<Record<string, string>>;
  startTimeoutMs?: number;
}

export interface EmbeddedPostgres {
  /** As the application role `hotbed_app`, which owns nothing. */
  url: string;
  /** As `hotbed_owner`, the owner of the database `hotbed`: for migrations. */
  ownerUrl: string;
  port: number;
  pid: number;
  /** Folder of the cluster (elsewhere than `dataDir` where root's server could not reach it). */
  clusterDir: string;
  /** Fast shutdown; resolves when the server is gone. */
  stop(): Promise<void>;
}

const DATABASE = 'hotbed';
const SUPERUSER = 'hotbed_admin';

/**
 * Starts the PostgreSQL of the npm package on a folder, making the cluster on first use. Listens on 127.0.0.1 only (no
 * Unix socket: its path would have a length limit), with passwords. Ends when this process ends. PostgreSQL refuses to run
 * as root, so for root it runs as the OS user `postgres`, else `nobody`.
 * @throws Error with the server's own last lines when it does not come up
 */
export async function startEmbeddedPostgres(options: EmbeddedPostgresOptions): Promise<EmbeddedPostgres> {
  const dataDir = resolve(options.dataDir);
  mkdirSync(dataDir, { recursive: true, mode: 0o700 });
  const place = placePostgres(dataDir);
  const passwords = {
    admin: loadOrCreateSecret(join(dataDir, 'admin.password')),
    owner: loadOrCreateSecret(join(dataDir, 'owner.password')),
    app: loadOrCreateSecret(join(dataDir, 'app.password')),
  };
  if (!existsSync(join(place.cluster, 'PG_VERSION'))) await makeCluster(place, passwords, options.fsync !== false);
  const logFile = join(dataDir, 'postgres.log');
  for (let attempt = 1; ; attempt++) {
    const port = options.port || (await freePort());
    const server = await startSupervised({
      name: 'the embedded PostgreSQL',
      command: join(place.binaries, 'bin', 'postgres'),
      args: ['-D', place.cluster, ...settingArguments(port, options)],
      cwd: place.cluster,
      env: postgresEnvironment(),
      ...(place.user === null ? {} : { user: place.user }),
      logFile,
      recordFile: join(dataDir, 'process.json'),
      // SIGINT = fast shutdown: roll back what is open, write a checkpoint, end.
      stopSignal: 'SIGINT',
    });
    try {
      await untilReady(server, place.cluster, options.startTimeoutMs ?? 60_000);
    } catch (error) {
      await server.stop();
      const lines = lastLines(logFile);
      const collided = lines.includes('Address already in use');
      if (collided && !options.port && attempt < 5) continue;
      const why = collided ? `port ${port} is in use; set HOTBED_POSTGRES_PORT to another one, or to 0` : lines;
      throw new Error(`the embedded PostgreSQL did not start: ${why}`, { cause: error });
    }
    const address = (user: string, password: string): string =>
      `postgres://${user}:${password}@127.0.0.1:${port}/${DATABASE}`;
    return {
      url: address('hotbed_app', passwords.app),
      ownerUrl: address('hotbed_owner', passwords.owner),
      port,
      pid: server.pid,
      clusterDir: place.cluster,
      stop: () => server.stop(),
    };
  }
}

function settingArguments(port: number, options: EmbeddedPostgresOptions): string[] {
  const settings: Record<string, string> = {
    port: String(port),
    listen_addresses: '127.0.0.1',
    unix_socket_directories: '',
    max_connections: String(options.maxConnections ?? 100),
    timezone: 'UTC',
    log_timezone: 'UTC',
    ...(options.fsync === false ? { fsync: 'off', synchronous_commit: 'off', full_page_writes: 'off' } : {}),
    ...options.settings,
  };
  return Object.entries(settings).flatMap(([name, value]) => ['-c', `${name}=${value}`]);
}

/** Own settings only: PGDATA or PGPORT of whoever starts us must not leak in. */
function postgresEnvironment(): NodeJS.ProcessEnv {
  return { PATH: process.env['PATH'], LC_ALL: 'C', TZ: 'UTC' };
}

/** Made beside its place and renamed, so that a cluster is complete or absent. */
async function makeCluster(
  place: PostgresPlace,
  passwords: { admin: string; owner: string; app: string },
  durable: boolean,
): Promise<void> {
  const building = `${place.cluster}.new`;
  rmSync(building, { recursive: true, force: true });
  mkdirSync(building, { mode: 0o700 });
  if (place.user !== null) chown(building, place.user);
  const passwordFile = `${place.cluster}.password`;
  writeFileSync(passwordFile, `${passwords.admin}\n`, { mode: 0o600 });
  if (place.user !== null) chown(passwordFile, place.user);
  const processOptions = { cwd: building, env: postgresEnvironment(), ...place.user };
  try {
    await promisify(execFile)(
      join(place.binaries, 'bin', 'initdb'),
      // prettier-ignore
      ['-D', building, '-U', SUPERUSER, '--pwfile', passwordFile, '--auth=scram-sha-256', '-E', 'UTF8', '--locale=C',
        ...(durable ? [] : ['--no-sync'])],
      processOptions,
    );
  } catch (error) {
    const output = error as { stderr?: string; message: string };
    throw new Error(`initdb failed: ${output.stderr?.trim() || output.message}`, { cause: error });
  } finally {
    rmSync(passwordFile, { force: true });
  }
  // Single-user mode ends a statement at each line end and needs neither port nor client.
  await runSingle(place, building, processOptions, [
    `CREATE ROLE hotbed_owner LOGIN PASSWORD '${passwords.owner}'`,
    `CREATE ROLE hotbed_app LOGIN PASSWORD '${passwords.app}'`,
    `CREATE DATABASE ${DATABASE} OWNER hotbed_owner`,
    `REVOKE ALL ON DATABASE ${DATABASE} FROM PUBLIC`,
    `GRANT CONNECT, TEMPORARY ON DATABASE ${DATABASE} TO hotbed_app`,
  ]);
  renameSync(building, place.cluster);
}

function runSingle(
  place: PostgresPlace,
  cluster: string,
  processOptions: { cwd: string; env: NodeJS.ProcessEnv; uid?: number; gid?: number },
  statements: readonly string[],
): Promise<void> {
  return new Promise((resolve, reject) => {
    const child = spawn(
      join(place.binaries, 'bin', 'postgres'),
      ['--single', '-D', cluster, '-c', 'exit_on_error=on', 'postgres'],
      { ...processOptions, stdio: ['pipe', 'ignore', 'pipe'] },
    );
    let errors = '';
    child.stderr.on('data', (chunk: Buffer) => (errors += chunk.toString('utf8')));
    child.once('error', reject);
    child.once('close', (code) => {
      if (code === 0) resolve();
      else reject(new Error(`cannot set up the database: ${errors.replace(/PASSWORD '[^']*'/g, "PASSWORD '...'")}`));
    });
    child.stdin.end(statements.map((s) => `${s};\n`).join(''));
  });
}

/** The server writes `ready` into line 8 of postmaster.pid; pg_ctl waits for the same. */
async function untilReady(server: SupervisedProcess, cluster: string, timeoutMs: number): Promise<void> {
  const deadline = Date.now() + timeoutMs;
  for (;;) {
    const ended = server.exit();
    if (ended !== null) throw new Error(`ended with ${ended}`);
    const lines = readLines(join(cluster, 'postmaster.pid'));
    if (Number(lines[0]) === server.pid && lines[7]?.trim() === 'ready') return;
    if (Date.now() > deadline) throw new Error(`not ready after ${timeoutMs} ms`);
    await delay(10);
  }
}

function readLines(path: string): string[] {
  try {
    return readFileSync(path, 'utf8').split('\n');
  } catch {
    return [];
  }
}
