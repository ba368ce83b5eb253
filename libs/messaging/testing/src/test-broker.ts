import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { startNatsServer, type NatsServer } from '../../../runtime/src/nats-server';
import { freePort } from '../../../runtime/src/free-port';
import { Broker } from '../../src/broker';
import { BrokerUsers, type ServiceUser } from '../../src/broker-users';

/** A real NATS server of this test file's own, with the platform's users. */
export interface TestBroker {
  readonly url: string;
  /** The server's data is in `nats` below it. */
  readonly folder: string;
  readonly users: BrokerUsers;
  readonly server: NatsServer;
  /** Connects as a service; closed with the broker. */
  as(service: ServiceUser): Promise<Broker>;
  /** Connects with credentials, for example a tenant's. */
  connect(credentials: { user: string; password: string }): Promise<Broker>;
  /** Adds a tenant's users and lets the server take them. */
  addTenant(tenantId: string): Promise<void>;
  stopServer(): Promise<void>;
  /** kill -9. */
  killServer(): Promise<void>;
  /** On the same port and data; `wiped` = with its data gone, `maxFileStore` = with so many bytes of disk. */
  startServer(options?: { wiped?: boolean; maxFileStore?: number }): Promise<void>;
  close(): Promise<void>;
}

/** Found by every test file: fetched once into the repository's own data folder. */
const TOOLS = join(__dirname, '..', '..', '..', '..', '.hotbed', 'tools');

export async function startTestBroker(): Promise<TestBroker> {
  const folder = mkdtempSync(join(tmpdir(), 'hotbed-nats-'));
  const users = BrokerUsers.open(join(folder, 'users.json'));
  const port = await freePort();
  const dataDir = join(folder, 'nats');
  const start = (limits: { maxFileStore?: number } = {}): Promise<NatsServer> =>
    startNatsServer({ dataDir, toolsDir: TOOLS, usersConfig: users.config(), port, syncAlways: false, ...limits });
  let server = await start();
  let isRunning = true;
  const brokers: Broker[] = [];
  const connect = async (credentials: { user: string; password: string }): Promise<Broker> => {
    const broker = await Broker.connect({ url: server.url, name: `test-${credentials.user}`, ...credentials });
    brokers.push(broker);
    return broker;
  };
  const end = async (how: 'stop' | 'kill'): Promise<void> => {
    if (isRunning) await server[how]();
    isRunning = false;
  };
  return {
    url: server.url,
    folder,
    users,
    get server() {
      return server;
    },
    connect,
    as: (service) => connect(users.credentials(service)),
    async addTenant(tenantId) {
      if (users.addTenant(tenantId)) await server.reloadUsers(users.config());
    },
    stopServer: () => end('stop'),
    killServer: () => end('kill'),
    async startServer(options = {}) {
      if (options.wiped === true) rmSync(join(dataDir, 'jetstream'), { recursive: true, force: true });
      const { maxFileStore } = options;
      server = await start(maxFileStore === undefined ? {} : { maxFileStore });
      isRunning = true;
    },
    async close() {
      await Promise.all(brokers.map((broker) => broker.close()));
      await end('stop');
      rmSync(folder, { recursive: true, force: true });
    },
  };
}

/** Starts a broker before the tests of a file and removes it after them. */
export function withTestBroker(): TestBroker {
  let broker: TestBroker | undefined;
  beforeAll(async () => {
    broker = await startTestBroker();
  }, 120_000);
  afterAll(async () => {
    await broker?.close();
  }, 60_000);
  return new Proxy({} as TestBroker, {
    get: (_, property) => Reflect.get(broker!, property) as unknown,
  });
}
