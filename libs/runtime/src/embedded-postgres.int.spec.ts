import { spawn } from 'node:child_process';
import { existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { Client } from 'pg';
import { startEmbeddedPostgres, type EmbeddedPostgres } from './embedded-postgres';

jest.setTimeout(90_000);

let folder: string;
let running: EmbeddedPostgres | undefined;

beforeAll(() => {
  folder = mkdtempSync(join(tmpdir(), 'hotbed-pg-'));
});
afterAll(async () => {
  await running?.stop();
  rmSync(folder, { recursive: true, force: true });
});

async function query<R>(url: string, sql: string): Promise<R[]> {
  const client = new Client({ connectionString: url });
  await client.connect();
  try {
    return (await client.query(sql)).rows as R[];
  } finally {
    await client.end();
  }
}

const start = async (): Promise<EmbeddedPostgres> => (running = await startEmbeddedPostgres({ dataDir: folder }));

describe('the embedded PostgreSQL', () => {
  it('is made once and keeps its data over a restart', async () => {
    const first = await start();
    await query(first.ownerUrl, 'CREATE TABLE kept (n bigint)');
    await query(first.ownerUrl, 'INSERT INTO kept VALUES (9007199254740993)');
    await first.stop();
    const second = await start();
    expect(await query(second.ownerUrl, 'SELECT n FROM kept')).toEqual([{ n: '9007199254740993' }]);
  });

  it('syncs commits to disk and lets the application role own nothing', async () => {
    const { url } = running!;
    expect(await query(url, 'SHOW fsync')).toEqual([{ fsync: 'on' }]);
    await expect(query(url, 'CREATE TABLE t (n int)')).rejects.toThrow(/permission denied/);
    await expect(query(url, 'SELECT * FROM kept')).rejects.toThrow(/permission denied/);
  });

  it('refuses a second start on the same data while it runs', async () => {
    await expect(startEmbeddedPostgres({ dataDir: folder })).rejects.toThrow(/twice on the same data folder/);
  });

  it('starts over a stale postmaster.pid whose process id belongs to somebody else', async () => {
    const { clusterDir } = running!;
    await running!.stop();
    writeFileSync(
      join(clusterDir, 'postmaster.pid'),
      `${process.ppid}\n${clusterDir}\n1\n5432\n\n127.0.0.1\n\nready\n`,
    );
    await start();
    expect(await query(running!.ownerUrl, 'SELECT count(*)::int AS n FROM kept')).toEqual([{ n: 1 }]);
  });

  it('comes up again after kill -9 of the server', async () => {
    const { pid } = running!;
    process.kill(pid, 'SIGKILL');
    await running!.stop();
    await start();
    expect(await query(running!.ownerUrl, 'SELECT count(*)::int AS n FROM kept')).toEqual([{ n: 1 }]);
    await running!.stop();
    running = undefined;
  });

  it('names the port when it is taken', async () => {
    const holder = spawn(process.execPath, [
      '-e',
      "const s=require('net').createServer().listen(0,'127.0.0.1',()=>console.log(s.address().port))",
    ]);
    const port = Number(await new Promise<string>((r) => holder.stdout.once('data', (d: Buffer) => r(d.toString()))));
    try {
      await expect(startEmbeddedPostgres({ dataDir: folder, port })).rejects.toThrow(`port ${port} is in use`);
    } finally {
      holder.kill();
    }
  });

  it('does not outlive a parent that is killed with -9', async () => {
    const script = join(folder, 'parent.ts');
    const log = join(folder, 'parent.out');
    writeFileSync(
      script,
      `const { startEmbeddedPostgres } = require(${JSON.stringify(join(__dirname, 'embedded-postgres.ts'))});
       startEmbeddedPostgres({ dataDir: ${JSON.stringify(folder)} }).then((s: { pid: number }) => {
         require('fs').writeFileSync(${JSON.stringify(log)}, String(s.pid)); setInterval(() => {}, 1000); });`,
    );
    const hook = join(__dirname, '..', 'testing', 'ts-hook.js');
    const parent = spawn(process.execPath, ['-r', hook, script], { stdio: 'inherit' });
    await until(() => existsSync(log) && readFileSync(log, 'utf8') !== '');
    const pid = Number(readFileSync(log, 'utf8'));
    parent.kill('SIGKILL');
    // An ended process that nobody has collected yet has no command line.
    const file = `/proc/${pid}/cmdline`;
    await until(() => !existsSync(file) || readFileSync(file, 'utf8') === '');
  });
});

async function until(condition: () => boolean, deadlineMs = 20_000): Promise<void> {
  const deadline = Date.now() + deadlineMs;
  while (!condition()) {
    if (Date.now() > deadline) throw new Error('condition not met in time');
    await delay(20);
  }
}
