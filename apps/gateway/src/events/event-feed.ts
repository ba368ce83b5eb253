import type { IncomingMessage, ServerResponse } from 'node:http';
import { once } from 'node:events';
import { Inject, Injectable } from '@nestjs/common';
import {
  DomainError,
  InvalidInput,
  isEventType,
  u64Schema,
  type AnyStoredEvent,
  type EventStore,
} from '#hotbed/contracts';
import { LOG_WATCH, type LogWatch } from './log-watch';

/** Injection token. */
export const EVENT_STORE = Symbol('EventStore');

const BATCH = 200;
const RECHECK_MS = 2_000;
/** A comment line now and then keeps proxies from closing a quiet connection. */
const HEARTBEAT_MS = 15_000;
/** Open feeds per process. */
const MAX_FEEDS = 256;

export interface FeedOptions {
  after: bigint;
  types: ReadonlySet<string> | null;
}

/** Follows the log for one tenant and writes what it sees as server-sent events. */
@Injectable()
export class EventFeed {
  private open = 0;
  private closing = false;

  constructor(
    @Inject(EVENT_STORE) private readonly events: EventStore,
    @Inject(LOG_WATCH) private readonly watch: LogWatch,
  ) {}

  /** @throws InvalidInput naming `after` or `types` */
  async options(after: string | undefined, types: string | undefined): Promise<FeedOptions> {
    if (after !== undefined && !u64Schema.safeParse(after).success) {
      throw new InvalidInput([{ path: 'after', message: 'expected a log position' }]);
    }
    const wanted = types?.split(',') ?? null;
    const unknown = wanted?.find((type) => !isEventType(type));
    if (unknown !== undefined) throw new InvalidInput([{ path: 'types', message: `no event type "${unknown}"` }]);
    if (this.open >= MAX_FEEDS) {
      throw new DomainError('TooMany', 'too_many_feeds', 'too many open event feeds; close one', {
        retryAfterMs: 5_000,
      });
    }
    return {
      after: after === undefined ? (await this.events.head()).position : BigInt(after),
      types: wanted === null ? null : new Set(wanted),
    };
  }

  async write(
    tenantId: string,
    options: FeedOptions,
    request: IncomingMessage,
    response: ServerResponse,
  ): Promise<void> {
    this.open += 1;
    try {
      response.writeHead(200, {
        'content-type': 'text/event-stream',
        'cache-control': 'no-store',
        connection: 'keep-alive',
      });
      response.flushHeaders();
      await this.follow(tenantId, options, request, response);
    } finally {
      this.open -= 1;
      response.end();
    }
  }

  /** Ends every feed soon; clients come back with their last event id. */
  close(): void {
    this.closing = true;
    this.watch.changed();
  }

  private async follow(tenantId: string, options: FeedOptions, request: IncomingMessage, response: ServerResponse) {
    let { after } = options;
    let lastWriteMs = Date.now();
    while (!request.destroyed && !response.destroyed && !this.closing) {
      const change = this.watch.next(RECHECK_MS);
      const batch = await this.events.readAll({ after, limit: BATCH });
      after = batch.at(-1)?.globalPosition ?? after;
      const text = batch
        .filter((e) => e.tenantId === tenantId && (options.types === null || options.types.has(e.type)))
        .map(serverSentEvent)
        .join('');
      if (text !== '' || Date.now() - lastWriteMs > HEARTBEAT_MS) {
        lastWriteMs = Date.now();
        if (!response.write(text === '' ? ': still here\n\n' : text))
          await once(response, 'drain').catch(() => undefined);
      }
      if (batch.length < BATCH) await change;
    }
  }
}

function serverSentEvent(event: AnyStoredEvent): string {
  const data = {
    position: event.globalPosition.toString(),
    eventId: event.eventId,
    type: event.type,
    streamId: event.streamId,
    streamVersion: event.streamVersion.toString(),
    occurredAtMs: event.occurredAtMs,
    actor: event.actor,
    correlationId: event.correlationId,
    causationId: event.causationId,
    eventHash: event.eventHash,
    payload: event.payload,
  };
  return `id: ${event.globalPosition}\nevent: ${event.type}\ndata: ${JSON.stringify(data)}\n\n`;
}
