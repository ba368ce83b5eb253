import { spawn, type ChildProcess } from 'node:child_process';
import { existsSync } from 'node:fs';
import { join, resolve } from 'node:path';
import type { TestDatabase } from '#hotbed/event-store/testing';
import { TINY_BASE } from '#hotbed/fold/testing';

const MAIN = resolve(__dirname, '../../../dist/apps/gpu-worker/src/main.js');

export interface WorkerExit {
  code: number | null;
  signal: NodeJS.Signals | null;
}

/** A worker in a process of its own, as it runs in production, with failpoints armed. */
export class WorkerProcess {
  readonly exited: Promise<WorkerExit>;
  /** Its JSON log, line by line. */
  readonly log: Record<string, unknown>[] = [];
  stderr = '';

  private constructor(readonly child: ChildProcess) {
    this.exited = new Promise((done) => child.once('exit', (code, signal) => done({ code, signal })));
    let rest = '';
    child.stdout?.setEncoding('utf8').on('data', (chunk: string) => {
      const lines = (rest + chunk).split('\n');
      rest = lines.pop() ?? '';
      for (const line of lines) if (line.startsWith('{')) this.log.push(JSON.parse(line) as Record<string, unknown>);
    });
    child.stderr?.setEncoding('utf8').on('data', (chunk: string) => (this.stderr += chunk));
  }

  static start(database: TestDatabase, variables: Record<string, string> = {}): WorkerProcess {
    if (!existsSync(MAIN)) throw new Error(`${MAIN} is missing; run \`npm run build\` first`);
    const child = spawn(process.execPath, [MAIN], {
      env: {
        PATH: process.env['PATH'] ?? '',
        NODE_ENV: 'test',
        HOTBED_BASE_MODEL: TINY_BASE,
        HOTBED_DATABASE_URL: database.url,
        // Nobody listens there: the broker only rings, and its absence must not matter.
        HOTBED_NATS_URL: 'nats://127.0.0.1:9',
        HOTBED_BLOB_DIR: join(database.blobFolder),
        HOTBED_ENGINE_THREADS: '1',
        HOTBED_KV_CACHE_MIB: '16',
        HOTBED_WORKER_POLL_MS: '20',
        ...variables,
      },
      stdio: ['ignore', 'pipe', 'pipe'],
    });
    return new WorkerProcess(child);
  }

  kill(signal: NodeJS.Signals): void {
    this.child.kill(signal);
  }

  /** Lines that say an adapter was brought into memory. */
  get recoveries(): { opIndex: number; from: number; replayed: number }[] {
    return this.log
      .filter((line) => line['msg'] === 'adapter is hot')
      .map((line) => ({
        opIndex: Number(line['opIndex']),
        from: Number(line['from']),
        replayed: Number(line['replayed']),
      }));
  }
}
