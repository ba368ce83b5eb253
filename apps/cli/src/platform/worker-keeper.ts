import { existsSync, readFileSync, statSync } from 'node:fs';
import { join } from 'node:path';
import { Unavailable } from '#hotbed/contracts';
import { freePort, startSupervised, type DataFolder, type Logger, type SupervisedProcess } from '#hotbed/runtime';

const MAIN = join(__dirname, '..', '..', '..', 'gpu-worker', 'src', 'main.js');
const WATCH_MS = 200;
const FIRST_RESTART_MS = 200;
const SLOWEST_RESTART_MS = 10_000;
/** A worker that lived this long failed by accident: the next one starts at once. */
const HEALTHY_AFTER_MS = 30_000;
const LOG_TAIL_BYTES = 4_000;

/** Keeps one worker process running beside the control plane: whoever kills it sees it come back and lose nothing. */
export class WorkerKeeper {
  private process: SupervisedProcess | null = null;
  private opsPort = 0;
  private startedAtMs = 0;
  /** Where this process's own words begin: earlier ones wrote the same file. */
  private logBegin = 0;
  private restarts = 0;
  private wasReady = false;
  private timer: NodeJS.Timeout | null = null;
  private restartAtMs = 0;
  private stopping = false;

  constructor(
    private readonly env: NodeJS.ProcessEnv,
    private readonly folder: DataFolder,
    private readonly logger: Logger,
  ) {}

  get pid(): number | null {
    return this.process?.pid ?? null;
  }

  /** How often the worker died and was started again. */
  get restartCount(): number {
    return this.restarts;
  }

  async start(): Promise<void> {
    await this.launch();
    this.timer = setInterval(() => void this.watch(), WATCH_MS);
  }

  async stop(): Promise<void> {
    this.stopping = true;
    if (this.timer !== null) clearInterval(this.timer);
    await this.process?.stop();
  }

  /** @throws Unavailable while it does not answer as ready */
  async assertReady(): Promise<void> {
    const response = await fetch(`http://127.0.0.1:${this.opsPort}/readyz`).catch(() => null);
    if (response?.ok !== true) throw new Unavailable('worker_not_ready', 'the worker is not ready');
    this.wasReady = true;
  }

  /** The worker's own words when it ended before it was ever ready: it will not do better a second time. */
  startFailure(): string | null {
    if (this.wasReady || this.process === null || this.process.exit() === null) return null;
    return `the worker cannot start: ${this.lastWords()}`;
  }

  private async launch(): Promise<void> {
    this.opsPort = await freePort();
    this.startedAtMs = Date.now();
    this.logBegin = existsSync(this.logFile) ? statSync(this.logFile).size : 0;
    this.process = await startSupervised({
      name: 'the worker',
      command: process.execPath,
      args: ['--enable-source-maps', MAIN],
      cwd: this.folder.root,
      env: { ...this.env, HOTBED_OPS_PORT: String(this.opsPort) },
      logFile: this.logFile,
      recordFile: join(this.folder.root, 'worker.json'),
      stopSignal: 'SIGTERM',
    });
  }

  private async watch(): Promise<void> {
    if (this.stopping || !this.wasReady || this.process === null) return;
    const exit = this.process.exit();
    if (exit === null) return;
    if (this.restartAtMs === 0) {
      const healthy = Date.now() - this.startedAtMs > HEALTHY_AFTER_MS;
      const delayMs = healthy ? 0 : Math.min(SLOWEST_RESTART_MS, FIRST_RESTART_MS * 2 ** Math.min(this.restarts, 10));
      this.logger.error({ exit, delayMs }, 'the worker ended; starting another');
      this.restartAtMs = Date.now() + delayMs;
    }
    if (Date.now() < this.restartAtMs) return;
    this.restartAtMs = 0;
    this.restarts += 1;
    this.process = null;
    await this.launch().catch((error: unknown) => this.logger.error({ err: error }, 'the worker could not be started'));
  }

  private get logFile(): string {
    return join(this.folder.logs, 'gpu-worker.log');
  }

  private lastWords(): string {
    const log = existsSync(this.logFile) ? readFileSync(this.logFile).subarray(this.logBegin) : Buffer.alloc(0);
    const text = log.subarray(-LOG_TAIL_BYTES).toString('utf8');
    const lines = text.split('\n').filter((line) => line.trim() !== '' && !line.startsWith('{'));
    return lines.slice(-5).join('\n') || `see ${this.logFile}`;
  }
}
