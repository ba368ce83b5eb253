import { randomBytes } from 'node:crypto';
import { chmodSync, existsSync, mkdirSync, readFileSync, renameSync, writeFileSync } from 'node:fs';
import { dirname } from 'node:path';
import { z } from 'zod';
import { APPS, idSchema, ingestStreamName, type AppName, type JetStreamName } from '#hotbed/contracts';
import { inboxPrefix } from './broker';
import { EVENT_STREAMS } from './event-streams';

export type ServiceUser = AppName | 'admin';
export const SERVICE_USERS: readonly ServiceUser[] = [...APPS, 'admin'];

/** Account of the platform's own services; it alone has JetStream. */
const PLATFORM_ACCOUNT = 'HOTBED';

export interface BrokerUser {
  user: string;
  /** Tenant whose account the user lives in; null = the platform's own. */
  tenantId: string | null;
  password: string;
  /** Subjects, wildcards allowed; everything else is refused. */
  publish: readonly string[];
  subscribe: readonly string[];
  /** May answer the requests that it receives. */
  responds: boolean;
}

/** Event streams that an app's lanes and doorbells consume. Whoever is not named here reads PostgreSQL alone. */
const CONSUMES: Record<AppName, readonly JetStreamName[]> = {
  gateway: [],
  ingest: ['HOTBED_DATA', 'HOTBED_EXPERIMENT'],
  orchestrator: ['HOTBED_DATA', 'HOTBED_ROLLOUT', 'HOTBED_ADAPTER'],
  rewarder: ['HOTBED_ROLLOUT'],
  'gpu-worker': ['HOTBED_ROLLOUT', 'HOTBED_ADAPTER'],
  registry: [],
  relay: [],
};

/** Apps that answer request/reply. */
const ANSWERS: readonly AppName[] = ['ingest', 'orchestrator', 'registry'];

export function serviceUser(name: ServiceUser, password: string, tenantIds: readonly string[]): BrokerUser {
  if (name === 'admin')
    return { user: name, tenantId: null, password, publish: ['>'], subscribe: ['>'], responds: true };
  return {
    user: name,
    tenantId: null,
    password,
    publish: [...servicePublishes(name, tenantIds)],
    subscribe: [ownInbox(name), ...(ANSWERS.includes(name) ? [`hotbed.rpc.*.${name}.*`] : [])],
    responds: ANSWERS.includes(name),
  };
}

/** What a tenant's producers use: they may add records to this tenant's streams and read the broker's answer. */
export function producerUser(tenantId: string, password: string): BrokerUser {
  const user = producerName(tenantId);
  return {
    user,
    tenantId,
    password,
    publish: [`hotbed.ingest.${tenantId}.*`],
    subscribe: [ownInbox(user)],
    responds: false,
  };
}

/** What a tenant's internal services use: they may ask the registry about this tenant. */
export function readerUser(tenantId: string, password: string): BrokerUser {
  const user = readerName(tenantId);
  return {
    user,
    tenantId,
    password,
    publish: [`hotbed.rpc.${tenantId}.registry.*`],
    subscribe: [ownInbox(user)],
    responds: false,
  };
}

export function producerName(tenantId: string): string {
  return `producer-${idSchema.parse(tenantId)}`;
}

export function readerName(tenantId: string): string {
  return `reader-${idSchema.parse(tenantId)}`;
}

/**
 * The `accounts` block of a NATS server. Each tenant's users live in an account of their own, which reaches the platform
 * through two imports and nothing else. Permissions alone would not do: JetStream answers a publish on the reply subject
 * that the publisher names, so a producer could have the answer delivered into another tenant's stream. Through an import
 * the answer can only come back into the tenant's own account.
 */
export function usersConfig(users: readonly BrokerUser[]): string {
  const tenantIds = [...new Set(users.map((user) => user.tenantId).filter((id) => id !== null))];
  const platform = `  ${PLATFORM_ACCOUNT}: {
    jetstream: enabled
    users: [${usersList(users.filter((user) => user.tenantId === null))}]
    exports: [ { service: "hotbed.ingest.*.*" }, { service: "hotbed.rpc.*.registry.*" } ]
  }`;
  const tenants = tenantIds.map(
    (id) => `  ${JSON.stringify(`tenant-${id}`)}: {
    users: [${usersList(users.filter((user) => user.tenantId === id))}]
    imports: [
      { service: { account: ${PLATFORM_ACCOUNT}, subject: "hotbed.ingest.${id}.*" } }
      { service: { account: ${PLATFORM_ACCOUNT}, subject: "hotbed.rpc.${id}.registry.*" } }
    ]
  }`,
  );
  return `accounts: {\n${[platform, ...tenants].join('\n')}\n}\n`;
}

function usersList(users: readonly BrokerUser[]): string {
  const list = (subjects: readonly string[]): string => `[${subjects.map((s) => JSON.stringify(s)).join(', ')}]`;
  return users
    .map(
      (user) => `
      { user: ${JSON.stringify(user.user)}, password: ${JSON.stringify(user.password)}, permissions: {
          publish: { allow: ${list(user.publish)} }
          subscribe: { allow: ${list(user.subscribe)} }${user.responds ? '\n          allow_responses: { max: 1, expires: "5m" }' : ''}
      } }`,
    )
    .join('');
}

const fileSchema = z.object({
  services: z.record(z.string(), z.string()),
  tenants: z.record(idSchema, z.object({ producer: z.string(), reader: z.string() })),
});

/** The users of our own broker and their passwords, kept in one file of mode 600. */
export class BrokerUsers {
  private constructor(
    private readonly path: string,
    private readonly data: z.infer<typeof fileSchema>,
  ) {}

  /** Opens the file, or makes it with a new password for every service. */
  static open(path: string): BrokerUsers {
    const data = existsSync(path)
      ? fileSchema.parse(JSON.parse(readFileSync(path, 'utf8')))
      : { services: {}, tenants: {} };
    for (const name of SERVICE_USERS) data.services[name] ??= newPassword();
    const users = new BrokerUsers(path, data);
    users.save();
    return users;
  }

  /** A tenant's users as the file has them now, or null; changes nothing. */
  static readTenant(path: string, tenantId: string): ReturnType<BrokerUsers['tenant']> {
    if (!existsSync(path)) return null;
    return new BrokerUsers(path, fileSchema.parse(JSON.parse(readFileSync(path, 'utf8')))).tenant(tenantId);
  }

  credentials(service: ServiceUser): { user: string; password: string } {
    return { user: service, password: this.data.services[service]! };
  }

  /** Adds a tenant's two users where missing. @returns whether they are new: then reload the server's users */
  addTenant(tenantId: string): boolean {
    if (this.data.tenants[idSchema.parse(tenantId)] !== undefined) return false;
    this.data.tenants[tenantId] = { producer: newPassword(), reader: newPassword() };
    this.save();
    return true;
  }

  tenant(
    tenantId: string,
  ): { producer: { user: string; password: string }; reader: { user: string; password: string } } | null {
    const passwords = this.data.tenants[tenantId];
    if (passwords === undefined) return null;
    return {
      producer: { user: producerName(tenantId), password: passwords.producer },
      reader: { user: readerName(tenantId), password: passwords.reader },
    };
  }

  all(): BrokerUser[] {
    const tenantIds = Object.keys(this.data.tenants);
    return [
      ...SERVICE_USERS.map((name) => serviceUser(name, this.data.services[name]!, tenantIds)),
      ...Object.entries(this.data.tenants).flatMap(([tenantId, passwords]) => [
        producerUser(tenantId, passwords.producer),
        readerUser(tenantId, passwords.reader),
      ]),
    ];
  }

  /** For startNatsServer and its reloadUsers. */
  config(): string {
    return usersConfig(this.all());
  }

  private save(): void {
    writePrivate(this.path, `${JSON.stringify(this.data, null, 2)}\n`);
  }
}

function* servicePublishes(app: AppName, tenantIds: readonly string[]): Generator<string> {
  yield '$JS.API.INFO';
  if (app === 'gateway') yield 'hotbed.rpc.*.*.*';
  // Beside allow_responses: a reload of the users (every new tenant) makes the server forget which questions a responder
  // has received, and would silently drop the replies that are on their way.
  if (ANSWERS.includes(app)) yield '_INBOX.*.>';
  for (const stream of CONSUMES[app]) yield* consumes(stream);
  if (app === 'relay') {
    yield 'hotbed.v1.>';
    for (const stream of EVENT_STREAMS) {
      for (const call of ['CREATE', 'UPDATE', 'INFO', 'DELETE', 'MSG.GET']) yield `$JS.API.STREAM.${call}.${stream}`;
    }
  }
  if (app === 'ingest') {
    for (const stream of tenantIds.map(ingestStreamName)) {
      for (const call of ['CREATE', 'UPDATE', 'PURGE', 'MSG.DELETE']) yield `$JS.API.STREAM.${call}.${stream}`;
      yield* consumes(stream);
    }
  }
}

function* consumes(stream: string): Generator<string> {
  yield `$JS.API.STREAM.INFO.${stream}`;
  for (const call of ['CREATE', 'DURABLE.CREATE', 'INFO', 'MSG.NEXT']) yield `$JS.API.CONSUMER.${call}.${stream}.>`;
  yield `$JS.ACK.${stream}.>`;
}

function ownInbox(user: string): string {
  return `${inboxPrefix(user)}.>`;
}

function newPassword(): string {
  return randomBytes(32).toString('base64url');
}

function writePrivate(path: string, content: string): void {
  mkdirSync(dirname(path), { recursive: true, mode: 0o700 });
  const temporary = `${path}.${process.pid}.tmp`;
  writeFileSync(temporary, content, { mode: 0o600, flush: true });
  chmodSync(temporary, 0o600);
  renameSync(temporary, path);
}
