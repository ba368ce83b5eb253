import { existsSync, mkdtempSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { spawn } from 'node:child_process';
import { createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { findNatsServer } from './find-nats-server';
import { startNatsServer, type NatsServer } from './nats-server';

jest.setTimeout(120_000);

const toolsDir = join(__dirname, '..', '..', '..', '.hotbed', 'tools');
const usersConfig = 'authorization { users: [ { user: "a", password: "one" } ] }\n';

describe('the NATS server', () => {
  let dataDir: string;
  let server: NatsServer;

  beforeAll(async () => {
    dataDir = mkdtempSync(join(tmpdir(), 'hotbed-nats-'));
    server = await startNatsServer({ dataDir, toolsDir, usersConfig });
  });
  afterAll(async () => {
    await server.stop();
    rmSync(dataDir, { recursive: true, force: true });
  });

  it('syncs every message to disk where it can, and keeps its files private', () => {
    const config = readFileSync(join(dataDir, 'nats-server.conf'), 'utf8');
    expect(config.includes('sync_interval: always')).toBe(!server.version.startsWith('2.9.'));
    for (const file of ['users.conf', 'nats-server.conf'])
      expect(statSync(join(dataDir, file)).mode & 0o777).toBe(0o600);
  });

  it('takes new users without a restart and says when it refuses them', async () => {
    const { pid } = server;
    await server.reloadUsers(usersConfig.replace('one', 'two'));
    await expect(server.reloadUsers('authorization { users: [')).rejects.toThrow(/refused the users/);
    await server.reloadUsers(usersConfig);
    expect(server.pid).toBe(pid);
  });

  it('refuses a second start on the same data while it runs', async () => {
    await expect(startNatsServer({ dataDir, toolsDir, usersConfig })).rejects.toThrow(/twice on the same data folder/);
  });

  it('names the port when it is taken', async () => {
    const holder = createServer();
    await new Promise<void>((resolve) => holder.listen(0, '127.0.0.1', resolve));
    const { port } = holder.address() as { port: number };
    const other = mkdtempSync(join(tmpdir(), 'hotbed-nats-'));
    await expect(startNatsServer({ dataDir: other, toolsDir, usersConfig, port })).rejects.toThrow(
      `port ${port} is in use`,
    );
    holder.close();
    rmSync(other, { recursive: true });
  });

  it('does not outlive a parent that is killed with -9, and starts again on its data', async () => {
    const folder = mkdtempSync(join(tmpdir(), 'hotbed-nats-'));
    const script = join(folder, 'parent.ts');
    const out = join(folder, 'pid');
    writeFileSync(
      script,
      `const { startNatsServer } = require(${JSON.stringify(join(__dirname, 'nats-server.ts'))});
       startNatsServer(${JSON.stringify({ dataDir: folder, toolsDir, usersConfig })}).then((s: { pid: number }) => {
         require('fs').writeFileSync(${JSON.stringify(out)}, String(s.pid)); setInterval(() => {}, 1000); });`,
    );
    const hook = join(__dirname, '..', 'testing', 'ts-hook.js');
    const parent = spawn(process.execPath, ['-r', hook, script], { stdio: 'inherit' });
    await until(() => existsSync(out) && readFileSync(out, 'utf8') !== '');
    parent.kill('SIGKILL');
    const again = await retried(() => startNatsServer({ dataDir: folder, toolsDir, usersConfig }));
    expect(isRunning(Number(readFileSync(out, 'utf8')))).toBe(false);
    await again.stop();
    rmSync(folder, { recursive: true });
  });

  it('is not looked for elsewhere when HOTBED_NATS_SERVER names no nats-server', async () => {
    await expect(
      findNatsServer({ toolsDir, onProgress: () => undefined }, { HOTBED_NATS_SERVER: '/bin/true' }),
    ).rejects.toThrow('HOTBED_NATS_SERVER: /bin/true is no nats-server of version 2.9 or newer');
  });
});

/** An ended process that nobody has collected yet has no command line. */
function isRunning(pid: number): boolean {
  const file = `/proc/${pid}/cmdline`;
  return existsSync(file) && readFileSync(file, 'utf8') !== '';
}

/** The parent may be a zombie for a moment, and counts as alive until it is collected. */
async function retried<T>(work: () => Promise<T>): Promise<T> {
  const deadline = Date.now() + 10_000;
  for (;;) {
    try {
      return await work();
    } catch (error) {
      if (Date.now() > deadline) throw error;
      await delay(50);
    }
  }
}

async function until(condition: () => boolean, deadlineMs = 30_000): Promise<void> {
  const deadline = Date.now() + deadlineMs;
  while (!condition()) {
    if (Date.now() > deadline) throw new Error('condition not met in time');
    await delay(20);
  }
}
