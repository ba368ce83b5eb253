import { mkdirSync, readFileSync, statSync } from 'node:fs';
import { createConnection } from 'node:net';
import { join, resolve } from 'node:path';
import { randomBytes } from 'node:crypto';
import { setTimeout as delay } from 'node:timers/promises';
import { writePrivateFile } from './data-folder';
import { freePort } from './free-port';
import { findNatsServer, type NatsProgram } from './find-nats-server';
import { lastLines, startSupervised, type SupervisedProcess } from './supervised-process';

export interface NatsServerOptions {
  /** Folder of this server, for example DataFolder.nats. Used again on the next start. */
  dataDir: string;
  /** Where a fetched nats-server program is kept, for example DataFolder.tools; default: `dataDir`. */
  toolsDir?: string;
  /** The `accounts` block that messaging's `usersConfig` writes. */
  usersConfig: string;
  /** 0 or absent = any free one. */
  port?: number;
  /** fsync before every acknowledgement (servers from 2.10); off only in tests. */
  syncAlways?: boolean;
  /** Upper limit of all streams together, bytes; absent = three quarters of the free disk. */
  maxFileStore?: number;
  startTimeoutMs?: number;
  /** Told in a line what is being fetched, when something is. */
  onProgress?: (line: string) => void;
}

export interface NatsServer {
  url: string;
  port: number;
  pid: number;
  version: string;
  /** Replaces the users (file and running server); resolves when the server has taken them. Connections stay. */
  reloadUsers(usersConfig: string): Promise<void>;
  stop(): Promise<void>;
  /** kill -9, for fault tests. */
  kill(): Promise<void>;
}

const MAX_PAYLOAD_BYTES = 1024 * 1024;

/**
 * Starts a NATS server with JetStream on 127.0.0.1. Ends when this process ends; its files are found again on the next
 * start. @throws Error with the server's own last lines when it does not come up
 */
export async function startNatsServer(options: NatsServerOptions): Promise<NatsServer> {
  const dataDir = resolve(options.dataDir);
  mkdirSync(dataDir, { recursive: true, mode: 0o700 });
  const program = await findNatsServer({
    toolsDir: resolve(options.toolsDir ?? options.dataDir),
    onProgress: options.onProgress ?? (() => undefined),
  });
  const files = {
    config: join(dataDir, 'nats-server.conf'),
    users: join(dataDir, 'users.conf'),
    log: join(dataDir, 'nats-server.log'),
  };
  writePrivateFile(files.users, options.usersConfig);
  for (let attempt = 1; ; attempt++) {
    const port = options.port || (await freePort());
    const serverName = `hotbed-${randomBytes(6).toString('hex')}`;
    writePrivateFile(files.config, configText(options, program, dataDir, port, serverName));
    const server = await startSupervised({
      name: 'the NATS server',
      command: program.path,
      args: ['-c', files.config],
      cwd: dataDir,
      logFile: files.log,
      recordFile: join(dataDir, 'process.json'),
      stopSignal: 'SIGTERM',
    });
    try {
      await untilReady(server, port, serverName, options.startTimeoutMs ?? 30_000);
    } catch (error) {
      await server.stop();
      const lines = lastLines(files.log);
      const collided = lines.includes('address already in use');
      if (collided && !options.port && attempt < 5) continue;
      const why = collided ? `port ${port} is in use; set HOTBED_NATS_PORT to another one, or to 0` : lines;
      throw new Error(`the NATS server did not start: ${why}`, { cause: error });
    }
    return {
      url: `nats://127.0.0.1:${port}`,
      port,
      pid: server.pid,
      version: program.version.join('.'),
      async reloadUsers(usersConfig) {
        writePrivateFile(files.users, usersConfig);
        // Twice: imports of an account that is new in a reload begin to work with the reload after it (seen with 2.15).
        for (let reload = 1; reload <= 2; reload++) {
          const seen = statSync(files.log).size;
          server.signal('SIGHUP');
          await untilReloaded(server, files.log, seen);
        }
      },
      stop: () => server.stop(),
      async kill() {
        server.signal('SIGKILL');
        await server.stop();
      },
    };
  }
}

function configText(
  options: NatsServerOptions,
  program: NatsProgram,
  dataDir: string,
  port: number,
  serverName: string,
): string {
  const knowsSyncInterval = program.version[0] > 2 || program.version[1] >= 10;
  const jetStream = [
    `store_dir: ${JSON.stringify(join(dataDir, 'jetstream'))}`,
    ...(knowsSyncInterval && options.syncAlways !== false ? ['sync_interval: always'] : []),
    ...(options.maxFileStore === undefined ? [] : [`max_file_store: ${options.maxFileStore}`]),
  ];
  return [
    `listen: "127.0.0.1:${port}"`,
    `server_name: ${JSON.stringify(serverName)}`,
    `max_payload: ${MAX_PAYLOAD_BYTES}`,
    'max_subscriptions: 0',
    `jetstream {\n  ${jetStream.join('\n  ')}\n}`,
    'include "users.conf"',
    '',
  ].join('\n');
}

/** The server greets with INFO; the name in it tells that it is ours and not another one on the same port. */
async function untilReady(
  server: SupervisedProcess,
  port: number,
  serverName: string,
  timeoutMs: number,
): Promise<void> {
  const deadline = Date.now() + timeoutMs;
  for (;;) {
    const ended = server.exit();
    if (ended !== null) throw new Error(`ended with ${ended}`);
    const info = await greeting(port);
    if (info?.server_name === serverName) {
      if (info.jetstream !== true) throw new Error('JetStream is off');
      return;
    }
    if (Date.now() > deadline) throw new Error(`not ready after ${timeoutMs} ms`);
    await delay(10);
  }
}

interface Info {
  server_name: string;
  jetstream?: boolean;
}

function greeting(port: number): Promise<Info | null> {
  return new Promise((resolve) => {
    const socket = createConnection({ host: '127.0.0.1', port });
    const end = (info: Info | null): void => {
      socket.destroy();
      resolve(info);
    };
    let text = '';
    socket.setTimeout(1000, () => end(null));
    socket.once('error', () => end(null));
    socket.once('close', () => end(null));
    socket.on('data', (chunk: Buffer) => {
      text += chunk.toString('utf8');
      const line = /^INFO (\{.*\})\s*\r\n/.exec(text)?.[1];
      if (line !== undefined) end(JSON.parse(line) as Info);
    });
  });
}

async function untilReloaded(server: SupervisedProcess, logFile: string, seen: number): Promise<void> {
  const deadline = Date.now() + 10_000;
  for (;;) {
    const news = readFileSync(logFile).subarray(seen).toString('utf8');
    if (news.includes('Reloaded server configuration')) return;
    if (news.includes('Failed to reload')) throw new Error(`the NATS server refused the users: ${news.trim()}`);
    const ended = server.exit();
    if (ended !== null) throw new Error(`the NATS server ended with ${ended}`);
    if (Date.now() > deadline) throw new Error('the NATS server did not take the new users within 10 s');
    await delay(10);
  }
}
