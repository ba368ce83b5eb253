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
/** Open feeds per process, and of one tenant: nobody takes the others' places. */
const MAX_FEEDS = 256;
export const MAX_FEEDS_PER_TENANT = 32;

export interface FeedOptions {
  after: bigint;
  types: ReadonlySet<string> | null;
}

/** Follows the log for one tenant and writes what it sees as server-sent events. */
@Injectable()
export class EventFeed {
  /** Open feeds by tenant. */
  private readonly open = new Map<string, number>();
  private closing = false;

  constructor(
    @Inject(EVENT_STORE) private readonly events: EventStore,
    @Inject(LOG_WATCH) private readonly watch: LogWatch,
  ) {}

  /**
   * Takes a place, which `write` gives back. @throws InvalidInput naming `after` or `types`; TooMany `too_many_feeds`
   */
  async enter(tenantId: string, after: unknown, types: string | string[] | undefined): Promise<FeedOptions> {
    const position = u64Schema.optional().safeParse(after);
    if (!position.success) throw new InvalidInput([{ path: 'after', message: 'expected a log position' }]);
    const wanted = typesOf(types);
    this.takePlace(tenantId);
    try {
      return {
        after: position.data === undefined ? (await this.events.head()).position : BigInt(position.data),
        types: wanted,
      };
    } catch (error) {
      this.givePlaceBack(tenantId);
      throw error;
    }
  }

  /** To one that has entered, until it leaves. */
  async write(
    tenantId: string,
    options: FeedOptions,
    request: IncomingMessage,
    response: ServerResponse,
  ): Promise<void> {
    try {
      response.writeHead(200, {
        'content-type': 'text/event-stream',
        'cache-control': 'no-store',
        connection: 'keep-alive',
      });
      response.flushHeaders();
      await this.follow(tenantId, options, request, response);
    } finally {
      this.givePlaceBack(tenantId);
      response.end();
    }
  }

  /** Ends every feed soon; clients come back with their last event id. */
  close(): void {
    this.closing = true;
    this.watch.changed();
  }

  /** Counted before anything is waited for: of many that come at once no more get in than there are places. */
  private takePlace(tenantId: string): void {
    const own = this.open.get(tenantId) ?? 0;
    const all = [...this.open.values()].reduce((sum, n) => sum + n, 0);
    if (own >= MAX_FEEDS_PER_TENANT || all >= MAX_FEEDS) {
      throw new DomainError('TooMany', 'too_many_feeds', 'too many open event feeds; close one', {
        retryAfterMs: 5_000,
      });
    }
    this.open.set(tenantId, own + 1);
  }

  private givePlaceBack(tenantId: string): void {
    const rest = (this.open.get(tenantId) ?? 0) - 1;
    if (rest > 0) this.open.set(tenantId, rest);
    else this.open.delete(tenantId);
  }

  private async follow(tenantId: string, options: FeedOptions, request: IncomingMessage, response: ServerResponse) {
    let { after } = options;
    let lastWriteMs = Date.now();
    // A client that goes wakes its feed, so that its place is free at once.
    const left = new AbortController();
    response.once('close', () => {
      left.abort();
      this.watch.changed();
    });
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
        // A client that has gone never drains.
        if (!response.write(text === '' ? ': still here\n\n' : text)) {
          await once(response, 'drain', { signal: left.signal }).catch(() => undefined);
        }
      }
      if (batch.length < BATCH) await change;
    }
  }
}

/** A query may name a parameter twice; then it is a list. */
function typesOf(types: string | string[] | undefined): ReadonlySet<string> | null {
  if (types === undefined) return null;
  const wanted = [types].flat().flatMap((text) => text.split(','));
  const unknown = wanted.find((type) => !isEventType(type));
  if (unknown !== undefined) throw new InvalidInput([{ path: 'types', message: `no event type "${unknown}"` }]);
  return new Set(wanted);
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
