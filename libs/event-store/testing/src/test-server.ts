import { spawn } from 'node:child_process';
import { existsSync, mkdirSync, readFileSync, renameSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { startEmbeddedPostgres } from '../../../runtime/src/embedded-postgres';

/** A PostgreSQL server for tests: URLs without a database name. */
export interface TestServer {
  /** May create databases and bypass triggers. */
  admin: string;
  /** Migrates. */
  owner: string;
  /** What apps use. */
  app: string;
  /** Made for this Jest run and removed after it. */
  endsWithRun: boolean;
}

/**
 * HOTBED_TEST_DATABASE_URL, else one embedded server for the whole Jest run: the first worker that needs it starts it,
 * the others find it, and a small shell removes it when the run is over.
 */
export async function testServer(): Promise<TestServer> {
  const given = process.env['HOTBED_TEST_DATABASE_URL'];
  if (given) {
    const base = withoutDatabase(given);
    return { admin: base, owner: base, app: base, endsWithRun: false };
  }
  const folder = join(tmpdir(), `hotbed-test-postgres-${runProcess()}`);
  const record = join(folder, 'server.json');
  if (!(await madeFolder(folder))) return waitFor(record);
  removeAfterRun(folder);
  const answer = await start(folder).catch((error: unknown) => ({ failed: String(error) }));
  writeFileSync(`${record}.new`, JSON.stringify(answer), { mode: 0o600 });
  renameSync(`${record}.new`, record);
  return waitFor(record);
}

/** Jest's main process: the parent of a worker (which has a channel to it), or this one. */
function runProcess(): number {
  return process.connected ? process.ppid : process.pid;
}

async function madeFolder(folder: string): Promise<boolean> {
  try {
    mkdirSync(folder);
    return true;
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'EEXIST') return false;
    throw error;
  }
}

async function waitFor(record: string): Promise<TestServer> {
  const deadline = Date.now() + 60_000;
  while (!existsSync(record)) {
    if (Date.now() > deadline) throw new Error(`no test database after 60 s; see ${record}`);
    await delay(20);
  }
  const answer = JSON.parse(readFileSync(record, 'utf8')) as TestServer | { failed: string };
  if ('failed' in answer) throw new Error(`the test database did not start: ${answer.failed}`);
  return answer;
}

async function start(folder: string): Promise<TestServer> {
  const dataDir = join(folder, 'data');
  const server = await startEmbeddedPostgres({ dataDir, fsync: false, maxConnections: 200 });
  writeFileSync(join(folder, 'server.pid'), String(server.pid));
  const password = readFileSync(join(dataDir, 'admin.password'), 'utf8').trim();
  return {
    admin: `postgres://hotbed_admin:${password}@127.0.0.1:${server.port}`,
    owner: withoutDatabase(server.ownerUrl),
    app: withoutDatabase(server.url),
    endsWithRun: true,
  };
}

/** The server ends with the worker that started it; its folder goes when the run and the server are gone. */
function removeAfterRun(folder: string): void {
  const script = [
    'while kill -0 "$1" 2>/dev/null; do sleep 0.2; done',
    'if [ -f "$2/server.pid" ]; then',
    '  pid=$(cat "$2/server.pid"); kill -INT "$pid" 2>/dev/null',
    '  while kill -0 "$pid" 2>/dev/null; do sleep 0.1; done',
    'fi',
    'rm -rf "$2"',
  ].join('\n');
  spawn('/bin/sh', ['-c', script, 'hotbed-test-guard', String(runProcess()), folder], {
    stdio: 'ignore',
    detached: true,
  }).unref();
}

function withoutDatabase(url: string): string {
  const { protocol, username, password, host } = new URL(url);
  const credentials = username === '' ? '' : `${username}${password === '' ? '' : `:${password}`}@`;
  return `${protocol}//${credentials}${host}`;
}
