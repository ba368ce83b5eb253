import { setMaxListeners } from 'node:events';
import type { Client } from 'pg';
import { toDomainError } from './database-errors';
import { dedicatedClient } from './pool';

/**
 * Wakes readers of the log when something was appended (NOTIFY). Only a wake-up: a notification may be lost with its
 * connection, so readers also poll, which `waitBeyond`'s time-out gives them.
 */
export class LogListener {
  private client: Client | null = null;
  private latest = 0n;
  private closed = false;
  private retry: NodeJS.Timeout | null = null;
  private readonly subscribers = new Set<(position: bigint) => void>();
  private readonly closing = new AbortController();

  private constructor(private readonly databaseUrl: string) {
    // One for each waiting reader, however many there are.
    setMaxListeners(0, this.closing.signal);
  }

  /** @throws Unavailable when PostgreSQL does not answer now; later losses are mended in the background */
  static async start(databaseUrl: string): Promise<LogListener> {
    const listener = new LogListener(databaseUrl);
    try {
      await listener.connect();
    } catch (error) {
      await listener.close();
      throw toDomainError(error);
    }
    return listener;
  }

  /** Called after each commit with the newest position. Returns the way to stop. */
  subscribe(onAppended: (position: bigint) => void): () => void {
    this.subscribers.add(onAppended);
    return () => void this.subscribers.delete(onAppended);
  }

  /** Resolves when a position beyond `position` is known, or after `timeoutMs`, when `signal` aborts, or at `close`. */
  waitBeyond(position: bigint, timeoutMs: number, signal?: AbortSignal): Promise<void> {
    if (this.latest > position || this.closed || signal?.aborted) return Promise.resolve();
    return new Promise((resolve) => {
      const done = (): void => {
        clearTimeout(timer);
        stop();
        signal?.removeEventListener('abort', done);
        this.closing.signal.removeEventListener('abort', done);
        resolve();
      };
      const timer = setTimeout(done, timeoutMs);
      const stop = this.subscribe((latest) => {
        if (latest > position) done();
      });
      signal?.addEventListener('abort', done);
      this.closing.signal.addEventListener('abort', done);
    });
  }

  async close(): Promise<void> {
    this.closed = true;
    this.closing.abort();
    if (this.retry !== null) clearTimeout(this.retry);
    const client = this.client;
    this.client = null;
    await client?.end().catch(() => undefined);
  }

  private async connect(): Promise<void> {
    const client = dedicatedClient(this.databaseUrl, 'hotbed-listen');
    let over = false;
    const onOver = (): void => {
      if (over) return;
      over = true;
      void client.end().catch(() => undefined);
      if (this.client === client) this.reconnect();
    };
    client.on('error', onOver);
    client.on('end', onOver);
    client.on('notification', ({ payload }) => this.announce(BigInt(payload ?? '0')));
    await client.connect();
    await client.query('LISTEN hotbed_log');
    if (this.closed) return void client.end().catch(() => undefined);
    this.client = client;
    // What was appended while nobody listened.
    const { rows } = await client.query<{ position: bigint }>('SELECT position FROM es.log_head');
    this.announce(rows[0]!.position);
  }

  private announce(position: bigint): void {
    if (position > this.latest) this.latest = position;
    for (const subscriber of [...this.subscribers]) subscriber(this.latest);
  }

  private reconnect(): void {
    this.client = null;
    if (this.closed) return;
    this.retry = setTimeout(() => {
      this.connect().catch(() => this.reconnect());
    }, 1000);
  }
}
