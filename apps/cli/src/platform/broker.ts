import { join } from 'node:path';
import { BrokerUsers, SERVICE_USERS, type ServiceUser } from '#hotbed/messaging';
import { FileBlobStore, LogListener, PgEventStore, createPool } from '#hotbed/event-store';
import { startNatsServer, writePrivateFile, type DataFolder, type Logger, type NatsServer } from '#hotbed/runtime';
import type { PlatformConfig } from './platform.config';
import { platformFiles } from './platform-files';
import { ServiceKeeper } from './service-keeper';

export interface Credentials {
  user: string;
  password: string;
}

export interface PlatformBroker {
  url: string;
  /** null where the broker is configured from outside: it has its own users. */
  credentialsFile: string | null;
  /** Empty where the broker is configured from outside. */
  credentials(service: ServiceUser): Partial<Credentials>;
  /** A tenant's producer and reader, once the server knows them; null with an outside broker. */
  tenant(tenantId: string): Promise<{ producer: Credentials; reader: Credentials } | null>;
  stop(): Promise<void>;
}

const BATCH = 500;
const POLL_MS = 1_000;

/** The configured broker, else a server of our own whose users follow the tenants of the log. */
export async function startBroker(
  config: PlatformConfig,
  folder: DataFolder,
  databaseUrl: string,
  logger: Logger,
  onProgress: (line: string) => void,
): Promise<PlatformBroker> {
  if (config.natsUrl !== null) return outsideBroker(config.natsUrl);
  onProgress('starting NATS');
  const users = BrokerUsers.open(platformFiles(folder.root).brokerUsers);
  const credentialsFile = join(folder.secrets, 'broker-credentials.json');
  const services = SERVICE_USERS.map((service) => [service, users.credentials(service).password]);
  writePrivateFile(credentialsFile, `${JSON.stringify(Object.fromEntries(services), null, 2)}\n`);
  const start = (port: number) =>
    startNatsServer({
      dataDir: folder.nats,
      toolsDir: config.toolsDir,
      usersConfig: users.config(),
      port,
      onProgress,
    });
  const server = await start(config.natsPort);
  const keeper = new ServiceKeeper('NATS', server, () => start(server.port), logger, onProgress);
  const follower = await TenantUsers.start(keeper, users, databaseUrl, folder.blobs, (error) =>
    logger.warn({ err: error }, 'new tenants could not be given users at the broker; trying again'),
  );
  return {
    url: server.url,
    credentialsFile,
    credentials: (service) => users.credentials(service),
    async tenant(tenantId) {
      await follower.add([tenantId]);
      return users.tenant(tenantId);
    },
    async stop() {
      await follower.stop();
      await keeper.stop();
    },
  };
}

function outsideBroker(url: string): PlatformBroker {
  return {
    url,
    credentialsFile: null,
    credentials: () => ({}),
    tenant: () => Promise.resolve(null),
    stop: () => Promise.resolve(),
  };
}

/** Gives every tenant of the log its users at our broker. */
class TenantUsers {
  private readonly stopping = new AbortController();
  private loop: Promise<void> = Promise.resolve();
  private changing: Promise<void> = Promise.resolve();

  private constructor(
    private readonly server: ServiceKeeper<NatsServer>,
    private readonly users: BrokerUsers,
    private readonly events: PgEventStore,
    private readonly listener: LogListener,
    private readonly closePool: () => Promise<void>,
    private readonly onProblem: (error: unknown) => void,
  ) {}

  static async start(
    server: ServiceKeeper<NatsServer>,
    users: BrokerUsers,
    databaseUrl: string,
    blobFolder: string,
    onProblem: (error: unknown) => void,
  ): Promise<TenantUsers> {
    const pool = createPool(databaseUrl, { applicationName: 'hotbed-broker-users', max: 2 });
    const events = new PgEventStore(pool, new FileBlobStore({ root: blobFolder }));
    const listener = await LogListener.start(databaseUrl);
    const follower = new TenantUsers(server, users, events, listener, () => pool.end(), onProblem);
    const position = await follower.readFrom(0n);
    follower.loop = follower.follow(position);
    return follower;
  }

  /** One change at a time: each rewrites the users file as a whole. */
  add(tenantIds: readonly string[]): Promise<void> {
    const change = this.changing.then(async () => {
      const changed = tenantIds.map((tenantId) => this.users.addTenant(tenantId)).some(Boolean);
      if (changed) await this.server.current.reloadUsers(this.users.config());
    });
    this.changing = change.catch(() => undefined);
    return change;
  }

  async stop(): Promise<void> {
    this.stopping.abort();
    await this.loop;
    await this.changing;
    await this.listener.close();
    await this.closePool();
  }

  private async follow(position: bigint): Promise<void> {
    let after = position;
    while (!this.stopping.signal.aborted) {
      await this.listener.waitBeyond(after, POLL_MS, this.stopping.signal);
      if (this.stopping.signal.aborted) return;
      // A failure is tried again at the next turn: nothing was marked as done.
      after = await this.readFrom(after).catch((error: unknown) => {
        this.onProblem(error);
        return after;
      });
    }
  }

  private async readFrom(position: bigint): Promise<bigint> {
    let after = position;
    for (;;) {
      const { position: head } = await this.events.head();
      const batch = await this.events.readAll({ after, limit: BATCH, categories: ['tenant'] });
      await this.add(batch.flatMap((event) => (event.type === 'TenantCreated' ? [event.payload.tenantId] : [])));
      if (batch.length < BATCH) return batch.at(-1)?.globalPosition ?? (head > after ? head : after);
      after = batch.at(-1)!.globalPosition;
    }
  }
}
