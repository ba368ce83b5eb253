import type { ChildProcess } from 'node:child_process';
import { existsSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { aDataFolder, removeDataFolder } from './data-folder';
import { Door, type Unchecked } from './door';
import { eventually } from './eventually';
import { runHotbed, spawnHotbed, type CommandResult } from './hotbed-command';

const START_DEADLINE_MS = 120_000;
const SUPERUSER = 'hotbed_admin';

interface Announcement {
  url: string;
  apiKeyFile: string;
  dataDir: string;
  natsUrl: string;
  /** `<position>:<hash>` of the log's end when the platform was ready. */
  head: string;
}

export interface Exit {
  code: number | null;
  signal: NodeJS.Signals | null;
}

export interface TenantCredentials {
  producer: { user: string; password: string };
  reader: { user: string; password: string };
}

/** `hotbed up` in a process of its own, as a person starts it. */
export class RunningPlatform {
  private constructor(
    private readonly child: ChildProcess,
    readonly exited: Promise<Exit>,
    readonly announced: Announcement,
    readonly variables: Record<string, string>,
  ) {}

  /**
   * Resolves once the platform says where it is.
   * @param variables HOTBED_* beyond the data folder; @param dataDir of an earlier platform, or a new one
   */
  static async start(variables: Record<string, string> = {}, dataDir = aDataFolder()): Promise<RunningPlatform> {
    const all = { HOTBED_HTTP_PORT: '0', ...variables, HOTBED_DATA_DIR: dataDir };
    const child = spawnHotbed(['--json', 'up'], all);
    let [stdout, stderr] = ['', ''];
    let ended: Exit | null = null;
    child.stdout?.setEncoding('utf8').on('data', (text: string) => (stdout += text));
    child.stderr?.setEncoding('utf8').on('data', (text: string) => (stderr += text));
    const exited = new Promise<Exit>((resolve) => {
      child.once('close', (code, signal) => resolve((ended = { code, signal })));
    });
    try {
      const line = await eventually(
        'the platform says where it is',
        () => {
          if (ended !== null) throw new Error(`hotbed up ended with ${ended.code ?? ended.signal}: ${stderr}`);
          return stdout.includes('\n') ? stdout.split('\n')[0] : null;
        },
        START_DEADLINE_MS,
      );
      return new RunningPlatform(child, exited, JSON.parse(line) as Announcement, all);
    } catch (error) {
      child.kill('SIGTERM');
      await exited;
      removeDataFolder(dataDir);
      throw error;
    }
  }

  get dataDir(): string {
    return this.announced.dataDir;
  }

  get adminKey(): string {
    return readFileSync(this.announced.apiKeyFile, 'utf8').trim();
  }

  /** The database as the application role. */
  get databaseUrl(): string {
    return readFileSync(join(this.dataDir, 'secrets', 'database-url'), 'utf8').trim();
  }

  /** The database as somebody who may do everything, triggers included. */
  get superuserUrl(): string {
    const url = new URL(this.databaseUrl);
    url.username = SUPERUSER;
    url.password = readFileSync(join(this.dataDir, 'postgres', 'admin.password'), 'utf8').trim();
    return url.href;
  }

  /** Process id of the worker that runs now; null between two of them. */
  get workerPid(): number | null {
    return pidIn(join(this.dataDir, 'worker.json'));
  }

  /** Process id of a server that the platform started; null between two of them. */
  servicePid(service: 'postgres' | 'nats'): number | null {
    return pidIn(join(this.dataDir, service, 'process.json'));
  }

  /** What the broker's administrator hands to a tenant; null until the platform has made them. */
  credentialsOf(tenantId: string): TenantCredentials | null {
    const file = join(this.dataDir, 'secrets', 'broker-users.json');
    const { tenants } = JSON.parse(readFileSync(file, 'utf8')) as {
      tenants: Record<string, { producer: string; reader: string }>;
    };
    const passwords = tenants[tenantId];
    if (passwords === undefined) return null;
    return {
      producer: { user: `producer-${tenantId}`, password: passwords.producer },
      reader: { user: `reader-${tenantId}`, password: passwords.reader },
    };
  }

  /** @param key of whom; default: the admin key that `up` made */
  door(key: string | null = this.adminKey): Door {
    return new Door(this.announced.url, key);
  }

  /** Runs a `hotbed` command against this platform. */
  hotbed(args: readonly string[], variables: Record<string, string> = {}): Promise<CommandResult> {
    return runHotbed(args, { ...this.variables, ...variables });
  }

  /** The same, which must succeed; its JSON answer. */
  async hotbedJson<T = Unchecked>(args: readonly string[], variables: Record<string, string> = {}): Promise<T> {
    const { code, stdout, stderr } = await this.hotbed(['--json', ...args], variables);
    if (code !== 0) throw new Error(`hotbed ${args.join(' ')} ended with ${code}: ${stdout}${stderr}`);
    return JSON.parse(stdout) as T;
  }

  /** Asks it to end, as Ctrl-C does. */
  stop(): Promise<Exit> {
    this.child.kill('SIGTERM');
    return this.exited;
  }

  /** kill -9 of the control plane alone: database, broker and worker must find out by themselves. */
  kill(): Promise<Exit> {
    this.child.kill('SIGKILL');
    return this.exited;
  }

  /** For `afterAll`: ends it and leaves nothing behind. */
  async remove(): Promise<void> {
    await this.stop();
    removeDataFolder(this.dataDir);
  }
}

function pidIn(file: string): number | null {
  return existsSync(file) ? (JSON.parse(readFileSync(file, 'utf8')) as { pid: number }).pid : null;
}
