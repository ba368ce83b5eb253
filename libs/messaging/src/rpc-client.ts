import { ErrorCode, NatsError } from 'nats';
import { z } from 'zod';
import { fromWireError, InvalidInput, rpcSubject, Unavailable, wireErrorSchema, type AppName } from '#hotbed/contracts';
import { text, type Broker } from './broker';
import { actorHeader } from './rpc-actor';
import { RPC_LIMIT_BYTES } from './rpc-server';

const replySchema = z.discriminatedUnion('ok', [
  z.object({ ok: z.literal(true), result: z.unknown() }),
  z.object({ ok: z.literal(false), error: wireErrorSchema }),
]);

export interface RequestOptions {
  timeoutMs?: number;
  /** In whose name a service asks: `key:<API key id>`. The event that comes of it names this actor. */
  actor?: string;
}

/** Asks another app. */
export class RpcClient {
  constructor(private readonly broker: Broker) {}

  /**
   * @returns the handler's result as JSON; the caller knows or checks its type
   * @throws what the handler threw; Unavailable `rpc_no_responders` (nothing was done) or `rpc_timeout` (it may have been
   * done: ask again with the same idempotency key)
   */
  async request<T = unknown>(
    tenantId: string,
    app: AppName,
    command: string,
    body: unknown,
    options: RequestOptions = {},
  ): Promise<T> {
    // Without a connection the question would wait in a buffer until its time-out.
    this.broker.assertConnected();
    const data = bodyText(body);
    if (Buffer.byteLength(data) > RPC_LIMIT_BYTES) {
      throw new InvalidInput([{ path: 'body', message: `is larger than ${RPC_LIMIT_BYTES} bytes` }]);
    }
    const timeoutMs = options.timeoutMs ?? 10_000;
    const named = options.actor === undefined ? {} : { headers: actorHeader(options.actor) };
    let answer;
    try {
      answer = await this.broker.nats.request(rpcSubject(tenantId, app, command), data, {
        timeout: timeoutMs,
        ...named,
      });
    } catch (error) {
      throw requestError(error, app, command, timeoutMs);
    }
    const reply = replySchema.parse(answer.json());
    if (!reply.ok) throw fromWireError(reply.error);
    return reply.result as T;
  }
}

/** @throws InvalidInput for what JSON cannot say, such as nesting deeper than the stack */
function bodyText(body: unknown): string {
  try {
    return JSON.stringify(body ?? {});
  } catch (error) {
    throw new InvalidInput([{ path: 'body', message: `cannot be sent: ${text(error)}` }]);
  }
}

function requestError(error: unknown, app: AppName, command: string, timeoutMs: number): Unavailable {
  const code = error instanceof NatsError ? (error.code as ErrorCode) : undefined;
  if (code === ErrorCode.NoResponders) {
    return new Unavailable('rpc_no_responders', `${app} is not running`, { cause: error, retryAfterMs: 1000 });
  }
  if (code === ErrorCode.Timeout) {
    return new Unavailable('rpc_timeout', `${app} ${command} did not answer within ${timeoutMs} ms`, { cause: error });
  }
  return new Unavailable('rpc_failed', `${app} ${command} cannot be asked: ${text(error)}`, { cause: error });
}
