import type { CommandApp, CommandInput, CommandName, CommandReply } from '#hotbed/contracts';

/** Request/reply to the app that owns a command. Bodies from outside are checked there, so they may be anything here. */
export interface Commands {
  request<A extends CommandApp, C extends CommandName<A>>(
    tenantId: string,
    app: A,
    command: C,
    body: CommandInput<A, C>,
    options?: { timeoutMs?: number },
  ): Promise<CommandReply<A, C>>;
}

/** Injection token. */
export const COMMANDS_PORT = Symbol('Commands');

/** What arrived in a body or query: the owner of the command checks it and names the wrong field. */
export function unchecked<T>(value: unknown): T {
  return value as T;
}
