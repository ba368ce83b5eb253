import { headers, type MsgHdrs, type StreamInfo } from 'nats';
import { canonicalJson, eventSubject, type AnyStoredEvent, type JetStreamName } from '#hotbed/contracts';
import { REQUEST_TIMEOUT_MS, text, type Broker } from './broker';
import {
  eventStreamConfig,
  EVENT_STREAM_LIMITS,
  generationOf,
  isNotFound,
  streamInfo,
  type StreamLimits,
} from './event-streams';

/** What the broker holds of one event stream. */
export interface EventStreamState {
  /** null = made by somebody else. */
  generation: string | null;
  /** RFC 3339, as the server reports it. */
  created: string;
  messages: number;
  lastSequence: number;
  /** Messages that somebody took out of the middle or off the end. */
  deleted: number;
  /** Far from max_bytes, so that the server has removed nothing for want of room. */
  hasRoom: boolean;
  /** Position before the oldest message; null without a message of ours. 0 = nothing is missing in front. */
  beforeFirst: bigint | null;
  /** The last message, where there is one. */
  last: { sequence: number; position: bigint | null; eventHash: string; generation: string | null } | null;
}

export type PublishOutcome =
  | { ok: true; lastPosition: bigint; lastSequence: number }
  /** How far the chain held before something went wrong. Read the stream's state before going on. */
  | { ok: false; problem: string; error?: unknown };

/** Larger payloads are not copied to the broker: the message then says only which event of the log it stands for. */
const BODY_LIMIT_BYTES = 256 * 1024;

/**
 * Writes one event stream of JetStream; the relay's hand. Publishes are chained by the expected last sequence: whatever
 * is lost, doubled or late, the stream's order is the log's.
 */
export class EventStreamWriter {
  constructor(
    private readonly broker: Broker,
    readonly stream: JetStreamName,
    private readonly limits: StreamLimits = EVENT_STREAM_LIMITS,
  ) {}

  /** null where the stream is missing. @throws Unavailable */
  async state(): Promise<EventStreamState | null> {
    const info = await streamInfo(this.broker, this.stream);
    if (info === null) return null;
    return {
      generation: generationOf(info),
      created: String(info.created),
      messages: info.state.messages,
      lastSequence: info.state.last_seq,
      deleted: info.state.num_deleted ?? 0,
      hasRoom: info.state.bytes < info.config.max_bytes / 2,
      beforeFirst: info.state.messages === 0 ? null : await this.beforeFirst(info),
      last: info.state.messages === 0 ? null : await this.lastMessage(info),
    };
  }

  /** Removes what there is and makes the stream empty. */
  async recreate(generation: string): Promise<EventStreamState> {
    const { streams } = await this.broker.streams;
    try {
      await streams.delete(this.stream);
    } catch (error) {
      if (!isNotFound(error)) throw error;
    }
    const info = await streams.add(eventStreamConfig(this.stream, generation, this.limits));
    return {
      generation,
      created: String(info.created),
      messages: 0,
      lastSequence: 0,
      deleted: 0,
      hasRoom: true,
      beforeFirst: null,
      last: null,
    };
  }

  /** Gives the stream a new generation (fresh message ids) and today's limits; messages stay. */
  async renew(generation: string): Promise<void> {
    await (
      await this.broker.streams
    ).streams.update(this.stream, eventStreamConfig(this.stream, generation, this.limits));
  }

  /**
   * Publishes events in order behind (lastPosition, lastSequence), all under way at once.
   * Success = every one stored by this very publish, each at the next sequence.
   */
  async publish(
    events: readonly AnyStoredEvent[],
    generation: string,
    lastPosition: bigint,
    lastSequence: number,
  ): Promise<PublishOutcome> {
    this.broker.assertConnected();
    let previous = lastPosition;
    const publishes = events.map((event, index) => {
      const sequence = lastSequence + index;
      const messageHeaders = eventHeaders(event, { generation, previous, sequence, stream: this.stream });
      previous = event.globalPosition;
      return this.broker.jetStream
        .publish(eventSubject(event), body(event), { headers: messageHeaders, timeout: REQUEST_TIMEOUT_MS })
        .then(
          (ack): string | null => {
            if (ack.duplicate) return `event ${event.globalPosition} was a duplicate: nothing is stored`;
            if (ack.seq !== sequence + 1)
              return `event ${event.globalPosition} went to ${ack.seq}, not ${sequence + 1}`;
            return null;
          },
          (error: unknown): string => `event ${event.globalPosition}: ${text(error)}`,
        );
    });
    const problems = await this.unlessDisconnected(Promise.all(publishes));
    const problem = problems.find((p) => p !== null);
    if (problem !== undefined && problem !== null) return { ok: false, problem };
    return { ok: true, lastPosition: previous, lastSequence: lastSequence + events.length };
  }

  /** What was under way when the connection broke may be stored or not: nobody will say. */
  private async unlessDisconnected(work: Promise<(string | null)[]>): Promise<(string | null)[]> {
    let stop = (): void => undefined;
    const lost = new Promise<string[]>((resolve) => {
      stop = this.broker.onDisconnect(() => resolve(['the connection to the broker was lost']));
    });
    try {
      return await Promise.race([work, lost]);
    } finally {
      stop();
    }
  }

  private async beforeFirst(info: StreamInfo): Promise<bigint | null> {
    try {
      const { streams } = await this.broker.streams;
      const message = await streams.getMessage(this.stream, { seq: info.state.first_seq });
      const position = message.header.get('ce-prevgp');
      return /^(0|[1-9][0-9]{0,18})$/.test(position) ? BigInt(position) : null;
    } catch (error) {
      if (isNotFound(error)) return null;
      throw error;
    }
  }

  private async lastMessage(info: StreamInfo): Promise<EventStreamState['last']> {
    const { streams } = await this.broker.streams;
    // The last sequence may be of a deleted message; then the newest that is left counts.
    for (let sequence = info.state.last_seq; sequence >= info.state.first_seq; sequence--) {
      try {
        const message = await streams.getMessage(this.stream, { seq: sequence });
        const position = message.header.get('ce-gp');
        return {
          sequence,
          position: /^[1-9][0-9]{0,18}$/.test(position) ? BigInt(position) : null,
          eventHash: message.header.get('ce-eventhash'),
          generation: message.header.get('Nats-Msg-Id').split(':')[0] ?? null,
        };
      } catch (error) {
        if (!isNotFound(error)) throw error;
      }
    }
    return null;
  }
}

/**
 * `Nats-*` first: servers have looked for them anywhere in the header text. CloudEvents 1.0, binary mode, after them.
 * Only ids, types, numbers and hashes; no text of a user.
 */
function eventHeaders(
  event: AnyStoredEvent,
  at: { generation: string; previous: bigint; sequence: number; stream: string },
): MsgHdrs {
  const h = headers();
  h.set('Nats-Msg-Id', `${at.generation}:${event.globalPosition}`);
  h.set('Nats-Expected-Stream', at.stream);
  h.set('Nats-Expected-Last-Sequence', String(at.sequence));
  h.set('ce-specversion', '1.0');
  h.set('ce-id', event.eventId);
  h.set('ce-source', 'hotbed');
  h.set('ce-type', event.type);
  h.set('ce-time', new Date(event.occurredAtMs).toISOString());
  h.set('ce-dataschema', `hotbed:${event.type}:${event.schemaVersion}`);
  h.set('ce-gp', String(event.globalPosition));
  h.set('ce-prevgp', String(at.previous));
  h.set('ce-streamid', event.streamId);
  h.set('ce-streamversion', String(event.streamVersion));
  h.set('ce-eventhash', event.eventHash);
  if (isId(event.correlationId)) h.set('ce-correlationid', event.correlationId);
  if (isId(event.causationId)) h.set('ce-causationid', event.causationId);
  h.set('traceparent', traceParent(event));
  h.set('content-type', 'application/json');
  return h;
}

/** W3C trace context: one trace per correlation, one span per event. */
function traceParent(event: AnyStoredEvent): string {
  const hex = (id: string): string => id.replaceAll('-', '');
  const trace = isId(event.correlationId) ? hex(event.correlationId) : hex(event.eventId);
  return `00-${trace}-${hex(event.eventId).slice(16)}-01`;
}

/** A caller may choose a correlation id freely; only a UUID travels in a header. */
function isId(id: string | null): id is string {
  return id !== null && /^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/.test(id);
}

function body(event: AnyStoredEvent): Uint8Array {
  const bytes = canonicalJson(event.payload);
  return bytes.length <= BODY_LIMIT_BYTES ? bytes : Buffer.from('{}');
}
