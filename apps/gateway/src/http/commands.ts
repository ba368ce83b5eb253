import {
  SYSTEM_TENANT_ID,
  type CommandApp,
  type CommandInput,
  type CommandName,
  type CommandReply,
} from '#hotbed/contracts';
import type { RpcClient } from '#hotbed/messaging';

/** In which tenant something is asked, and with which API key: the event that comes of it names the key as its actor. */
export interface Asker {
  tenantId: string;
  /** null = nobody's key: the gateway itself asks. */
  keyId: string | null;
}

/** The gateway itself asks. */
export const PLATFORM: Asker = { tenantId: SYSTEM_TENANT_ID, keyId: null };

/** An admin asks for what only the platform's own tenant may do. */
export function asPlatform(admin: Asker): Asker {
  return { tenantId: SYSTEM_TENANT_ID, keyId: admin.keyId };
}

/** Request/reply to the app that owns a command. Bodies from outside are checked there, so they may be anything here. */
export interface Commands {
  request<A extends CommandApp, C extends CommandName<A>>(
    asker: Asker,
    app: A,
    command: C,
    body: CommandInput<A, C>,
  ): Promise<CommandReply<A, C>>;
}

/** Injection token. */
export const COMMANDS_PORT = Symbol('Commands');

/** Over the broker. */
export class RpcCommands implements Commands {
  constructor(private readonly client: RpcClient) {}

  request<A extends CommandApp, C extends CommandName<A>>(
    { tenantId, keyId }: Asker,
    app: A,
    command: C,
    body: CommandInput<A, C>,
  ): Promise<CommandReply<A, C>> {
    return this.client.request(tenantId, app, command, body, keyId === null ? {} : { actor: `key:${keyId}` });
  }
}

/** What arrived in a body or query: the owner of the command checks it and names the wrong field. */
export function unchecked<T>(value: unknown): T {
  return value as T;
}
