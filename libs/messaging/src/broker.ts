import {
  connect,
  Events,
  NatsError,
  type ConnectionOptions,
  type JetStreamClient,
  type JetStreamManager,
  type NatsConnection,
} from 'nats';
import { Unavailable } from '#hotbed/contracts';

export interface BrokerOptions {
  /** `nats://host:port`, several separated by commas. A user and password in it are used when `user` is absent. */
  url: string;
  user?: string;
  password?: string;
  /** Shown in the server's connection list. */
  name: string;
  /** How long the first connection is tried. Later losses are mended in the background for ever. */
  connectTimeoutMs?: number;
  /** What happens to the connection, for the log. */
  onStatus?: (line: string) => void;
}

/**
 * One connection to the broker under one user. Replies arrive below `_INBOX.<user>` and nowhere else: the server lets
 * each user subscribe only there, since the client's default inbox would let anyone read everyone's replies.
 */
export class Broker {
  private manager: Promise<JetStreamManager> | undefined;
  private readonly reconnectListeners = new Set<() => void>();
  private readonly disconnectListeners = new Set<() => void>();
  private connected = true;

  private constructor(
    /** For this library only. */
    readonly nats: NatsConnection,
    readonly jetStream: JetStreamClient,
    readonly user: string,
    private readonly onStatus: (line: string) => void,
  ) {
    void this.watch();
  }

  /** @throws Unavailable `broker_unreachable` naming the address; `broker_without_jetstream` */
  static async connect(options: BrokerOptions): Promise<Broker> {
    const { servers, user, password } = credentialsOf(options);
    const settings: ConnectionOptions = {
      servers,
      name: options.name,
      inboxPrefix: inboxPrefix(user ?? options.name),
      maxReconnectAttempts: -1,
      reconnectTimeWait: 250,
      reconnectJitter: 100,
      pingInterval: 10_000,
      timeout: options.connectTimeoutMs ?? 5000,
      ...(user === undefined ? {} : { user, pass: password ?? '' }),
    };
    let nats: NatsConnection;
    try {
      nats = await connect(settings);
    } catch (error) {
      throw new Unavailable(
        'broker_unreachable',
        `cannot connect to NATS at ${servers.join(', ')}${user === undefined ? '' : ` as ${user}`}: ${text(error)}`,
        { cause: error },
      );
    }
    const jetStream = nats.jetstream({ timeout: REQUEST_TIMEOUT_MS });
    return new Broker(nats, jetStream, user ?? options.name, options.onStatus ?? (() => undefined));
  }

  /** Manages streams and consumers as far as this user may. Nothing is asked of the server to make it. */
  get streams(): Promise<JetStreamManager> {
    return (this.manager ??= this.nats.jetstreamManager({ timeout: REQUEST_TIMEOUT_MS, checkAPI: false }));
  }

  /** Called after each reconnection. @returns the way to stop */
  onReconnect(listener: () => void): () => void {
    this.reconnectListeners.add(listener);
    return () => this.reconnectListeners.delete(listener);
  }

  /** Called when the connection is lost: answers still awaited will not come. @returns the way to stop */
  onDisconnect(listener: () => void): () => void {
    this.disconnectListeners.add(listener);
    return () => this.disconnectListeners.delete(listener);
  }

  /** A readiness check. @throws Unavailable while there is no connection */
  assertConnected(): void {
    if (!this.connected || this.nats.isClosed()) throw new Unavailable('broker_disconnected', 'NATS is not connected');
  }

  /** @throws Unavailable `broker_without_jetstream` when the server runs without JetStream */
  assertJetStream(): void {
    if (this.nats.info?.jetstream === true) return;
    throw new Unavailable(
      'broker_without_jetstream',
      'the NATS server runs without JetStream; start it with `-js` or a `jetstream` block',
    );
  }

  /** Everything published so far has reached the server. */
  flush(): Promise<void> {
    return this.nats.flush();
  }

  /** Ends subscriptions, sends what is buffered, closes. Without a connection it closes at once. */
  async close(): Promise<void> {
    if (this.nats.isClosed()) return;
    if (this.connected) await this.nats.drain().catch(() => this.nats.close());
    else await this.nats.close();
  }

  private async watch(): Promise<void> {
    for await (const status of this.nats.status()) {
      const type: string = status.type;
      if (type === String(Events.Disconnect)) {
        this.connected = false;
        this.onStatus('disconnected');
        for (const listener of [...this.disconnectListeners]) listener();
      } else if (type === String(Events.Reconnect)) {
        this.connected = true;
        this.onStatus('reconnected');
        for (const listener of [...this.reconnectListeners]) listener();
      } else if (type === String(Events.Error)) {
        this.onStatus(`error: ${text(status.data)}`);
      }
    }
  }
}

/** Time that JetStream has for an answer; it may sync to disk first. */
export const REQUEST_TIMEOUT_MS = 5000;

export function inboxPrefix(user: string): string {
  return `_INBOX.${user}`;
}

function credentialsOf(options: BrokerOptions): { servers: string[]; user?: string; password?: string } {
  let user = options.user;
  let password = options.password;
  const servers = options.url.split(',').map((address) => {
    const url = new URL(address.includes('://') ? address.trim() : `nats://${address.trim()}`);
    if (user === undefined && url.username !== '') {
      user = decodeURIComponent(url.username);
      password = decodeURIComponent(url.password);
    }
    return url.host;
  });
  return { servers, ...(user === undefined ? {} : { user }), ...(password === undefined ? {} : { password }) };
}

/** What the server said, where it said something; the client hides it behind a general text for some codes. */
export function text(error: unknown): string {
  if (error instanceof NatsError && error.api_error !== undefined) return error.api_error.description;
  return error instanceof Error ? error.message : String(error);
}
