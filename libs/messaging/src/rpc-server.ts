import type { Msg, Subscription } from 'nats';
import type { z } from 'zod';
import {
  assertStorable,
  DomainError,
  idSchema,
  InvalidInput,
  parseInput,
  toWireError,
  Unavailable,
  type AppName,
} from '#hotbed/contracts';
import type { Broker } from './broker';
import { actorOf } from './rpc-actor';

export interface RpcContext {
  /** From the subject, never from the body. */
  tenantId: string;
  command: string;
  /** `key:<API key id>` in whose name a service asks; null = the asker named nobody, or may not name anybody. */
  actor: string | null;
}

interface Handler {
  schema: z.ZodType;
  handle: (body: unknown, context: RpcContext) => Promise<unknown>;
}

export interface RpcServerOptions {
  /** Time of one handler; default 30 s. */
  timeoutMs?: number;
  /** Requests worked on at the same time; more are refused with TooMany; default 256. */
  concurrency?: number;
  /** A bug's full error, for the log. */
  onBug?: (command: string, error: unknown) => void;
}

/** Bytes of a request or a reply. */
export const RPC_LIMIT_BYTES = 512 * 1024;

/**
 * Answers `hotbed.rpc.<tenant id>.<app>.<command>` with plain JSON, so that any NATS client can ask:
 * `{"ok":true,"result":...}` or `{"ok":false,"error":{kind, code, message, ...}}`. Several processes of an app share the
 * requests (queue group).
 */
export class RpcServer {
  private readonly handlers = new Map<string, Handler>();
  private subscription: Subscription | undefined;
  private working = 0;
  private idle: (() => void) | undefined;

  constructor(
    private readonly broker: Broker,
    private readonly app: AppName,
    private readonly options: RpcServerOptions = {},
  ) {}

  /** @throws Error when the command has a handler already */
  handle<S extends z.ZodType>(
    command: string,
    schema: S,
    handle: (body: z.output<S>, context: RpcContext) => Promise<unknown>,
  ): this {
    if (!/^[a-z][a-z0-9-]*$/.test(command)) throw new Error(`"${command}" is no command name: a-z, 0-9 and -`);
    if (this.handlers.has(command)) throw new Error(`${this.app}: command ${command} has two handlers`);
    this.handlers.set(command, { schema, handle: handle as Handler['handle'] });
    return this;
  }

  /**
   * Begins to answer. @param commands every command that the app promises
   * @throws Error naming the commands without a handler and the handlers without a command
   */
  start(commands: readonly string[]): void {
    const missing = commands.filter((command) => !this.handlers.has(command));
    const extra = [...this.handlers.keys()].filter((command) => !commands.includes(command));
    if (missing.length > 0) throw new Error(`${this.app}: add a handler for ${missing.join(', ')}`);
    if (extra.length > 0) throw new Error(`${this.app}: add ${extra.join(', ')} to the app's list of commands`);
    this.subscription = this.broker.nats.subscribe(`hotbed.rpc.*.${this.app}.*`, {
      queue: `hotbed-rpc-${this.app}`,
      callback: (error, message) => {
        if (error === null) void this.receive(message);
      },
    });
  }

  /** Takes no more requests; resolves when every request taken has been answered. */
  async stop(): Promise<void> {
    const subscription = this.subscription;
    this.subscription = undefined;
    if (subscription !== undefined && !subscription.isClosed()) await subscription.drain().catch(() => undefined);
    if (this.working > 0) await new Promise<void>((resolve) => (this.idle = resolve));
  }

  private async receive(message: Msg): Promise<void> {
    // A reply subject elsewhere would make us publish where the asker itself may not.
    // `_R_.` is the server's own, for askers in a tenant's account.
    if (!/^(_INBOX|_R_)\./.test(message.reply ?? '')) return;
    this.working += 1;
    const answer = await this.answer(message).then(
      (result) => JSON.stringify({ ok: true, result: result ?? null }),
      (error: unknown) => this.errorText(message.subject, error),
    );
    const fits = Buffer.byteLength(answer) <= RPC_LIMIT_BYTES;
    try {
      message.respond(fits ? answer : JSON.stringify({ ok: false, error: toWireError(tooLarge('the reply')) }));
    } catch {
      // The connection is closed: the asker's time-out tells it.
    }
    this.working -= 1;
    if (this.working === 0) this.idle?.();
  }

  private async answer(message: Msg): Promise<unknown> {
    const [, , tenantId = '', app = '', command = ''] = message.subject.split('.');
    if (!idSchema.safeParse(tenantId).success) {
      throw new InvalidInput([{ path: 'subject', message: `"${tenantId}" is no tenant id` }]);
    }
    const handler = this.handlers.get(command);
    if (handler === undefined)
      throw new DomainError('NotFound', 'command_not_found', `${app} has no command "${command}"`);
    if (message.data.length > RPC_LIMIT_BYTES) throw tooLarge('the request');
    if (this.working > (this.options.concurrency ?? 256)) {
      throw new DomainError('TooMany', 'rpc_busy', `${app} works on too many requests; try again`, {
        retryAfterMs: 250,
      });
    }
    const actor = actorOf(message);
    const body = parseInput(handler.schema, json(message));
    // No text that the database cannot even be asked about.
    for (const [field, value] of Object.entries(body as object)) assertStorable(value, field);
    const timeoutMs = this.options.timeoutMs ?? 30_000;
    let timer: NodeJS.Timeout | undefined;
    const late = new Promise<never>((_, reject) => {
      timer = setTimeout(
        () => reject(new Unavailable('rpc_timeout', `${app} ${command} did not end within ${timeoutMs} ms`)),
        timeoutMs,
      );
    });
    try {
      return await Promise.race([handler.handle(body, { tenantId, command, actor }), late]);
    } finally {
      clearTimeout(timer);
    }
  }

  private errorText(subject: string, error: unknown): string {
    if (!(error instanceof DomainError)) this.options.onBug?.(subject, error);
    return JSON.stringify({ ok: false, error: toWireError(error) });
  }
}

function json(message: Msg): unknown {
  if (message.data.length === 0) return {};
  try {
    return JSON.parse(new TextDecoder('utf-8', { fatal: true }).decode(message.data)) as unknown;
  } catch {
    throw new InvalidInput([{ path: 'body', message: 'expected JSON in UTF-8' }]);
  }
}

function tooLarge(what: string): InvalidInput {
  return new InvalidInput([{ path: 'body', message: `${what} is larger than ${RPC_LIMIT_BYTES} bytes` }]);
}
