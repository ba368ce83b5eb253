import { categoriesOf, type EventStreamState, type EventStreamWriter } from '#hotbed/messaging';
import {
  newId,
  streamId,
  SYSTEM_TENANT_ID,
  type AnyStoredEvent,
  type EventStore,
  type JetStreamName,
  type PayloadOf,
} from '#hotbed/contracts';
import type { RelayCursor } from '#hotbed/event-store';

export type RewindReason = PayloadOf<'RelayRewound'>['reason'];

export interface StreamRelayParts {
  writer: EventStreamWriter;
  store: EventStore;
  cursors: {
    load(stream: string): Promise<RelayCursor | null>;
    save(cursor: RelayCursor, epoch: bigint): Promise<void>;
  };
  epoch: bigint;
  maxAgeMs: number;
  onRewound: (stream: JetStreamName, reason: RewindReason, from: bigint) => void;
}

/** The broker knows events that the log does not have: the database was restored to an earlier backup. */
export class AheadOfLog extends Error {
  constructor(stream: string, position: bigint, head: bigint) {
    super(
      `stream ${stream} of the broker ends with event ${position}, the log with ${head}: the database was restored to an ` +
        'earlier backup, or is another one. The relay stops. If the log is the one to keep, delete the HOTBED_ event ' +
        'streams of the broker (they are refilled) and start the relay again.',
    );
    this.name = 'AheadOfLog';
  }
}

/** Events read and published in one window. */
export const WINDOW = 256;

/** The cursor may lag behind the broker: what it does not know of is found in the broker itself. */
const SAVE_EVERY_MS = 200;

/**
 * Brings one JetStream stream to the state of the log and keeps it there.
 *
 * 1. What the stream's last message says is the truth about the broker; the cursor in PostgreSQL is a hint that shows a
 *    loss, and is never ahead of the broker.
 * 2. Positions of the stream's categories are published in order, each behind the one before it.
 * 3. Any doubt (a failed, doubled or misplaced publish) leads back to `synchronise`.
 */
export class StreamRelay {
  readonly name: JetStreamName;
  private readonly categories: ReturnType<typeof categoriesOf>;
  private generation = '';
  private created: string | null = null;
  private lastPosition = 0n;
  private lastSequence = 0;
  private isSaved = true;
  private savedAtMs = 0;
  /** A generation in which no progress was made although the log has more: its message ids are used up. */
  private stuckAt: { generation: string; position: bigint } | null = null;

  constructor(private readonly parts: StreamRelayParts) {
    this.name = parts.writer.stream;
    this.categories = categoriesOf(this.name);
  }

  get position(): bigint {
    return this.lastPosition;
  }

  /** Reads where the broker is and mends what it lost. @throws AheadOfLog, Unavailable */
  async synchronise(): Promise<void> {
    const { writer, cursors } = this.parts;
    const cursor = await cursors.load(this.name);
    const state = await writer.state();
    if (state === null) return this.begin(cursor === null ? null : 'missing');
    if (state.last?.position != null && state.generation !== null) {
      await this.assertInLog(state.last.position, state.last.eventHash);
    }
    const isOurs = state.generation !== null && (cursor === null || state.generation === cursor.generation);
    if (!isOurs) return this.begin(cursor === null && state.lastSequence === 0 ? null : 'recreated');
    if (state.last === null) return this.synchroniseEmpty(state, cursor);
    if (state.last.position === null) return this.begin('recreated');
    if (await this.hasHoles(state)) return this.begin('purged');
    this.generation = state.generation ?? '';
    this.created = state.created;
    this.lastPosition = state.last.position;
    this.lastSequence = state.lastSequence;
    const lostTail = cursor !== null && cursor.lastPosition > this.lastPosition;
    const isStuck = this.stuckAt?.generation === this.generation && this.stuckAt.position === this.lastPosition;
    if (lostTail || isStuck) {
      if (lostTail) await this.rewound('tail_lost', this.lastPosition);
      // The server may remember the lost messages' ids: under a new generation none of them is a duplicate.
      this.generation = newId();
      await this.saveCursor();
      await writer.renew(this.generation);
    }
    this.stuckAt = null;
    await this.saveCursor();
  }

  /** Whether the broker still has all that it was given; a purge leaves no trace in the sequence numbers. */
  async isIntact(): Promise<boolean> {
    const state = await this.parts.writer.state();
    if (state === null || state.generation !== this.generation || state.created !== this.created) return false;
    if (state.lastSequence !== this.lastSequence) return false;
    if (state.last !== null) return !(await this.hasHoles(state));
    return this.lastPosition === 0n || this.hasAged(this.lastPosition);
  }

  /**
   * Publishes the stream's events in (here, upTo]. @returns false when something went wrong: synchronise first
   */
  async catchUp(upTo: bigint, stop: AbortSignal): Promise<boolean> {
    while (!stop.aborted) {
      const events = await this.parts.store.readAll({
        after: this.lastPosition,
        limit: WINDOW,
        categories: this.categories,
      });
      const due = events.filter((event) => event.globalPosition <= upTo);
      if (due.length === 0) return true;
      if (!(await this.publish(due)).ok) return false;
      if (due.length < events.length) return true;
    }
    return false;
  }

  async publish(events: readonly AnyStoredEvent[]): Promise<{ ok: true } | { ok: false; problem: string }> {
    const from = this.lastPosition;
    const outcome = await this.parts.writer.publish(events, this.generation, this.lastPosition, this.lastSequence);
    if (!outcome.ok) {
      if (outcome.problem.includes('duplicate')) this.stuckAt = { generation: this.generation, position: from };
      return { ok: false, problem: outcome.problem };
    }
    this.lastPosition = outcome.lastPosition;
    this.lastSequence = outcome.lastSequence;
    this.isSaved = false;
    if (Date.now() - this.savedAtMs > SAVE_EVERY_MS) await this.saveCursor();
    return { ok: true };
  }

  /** Saves the cursor where it lags; called when there is nothing to publish. */
  async settle(): Promise<void> {
    if (!this.isSaved) await this.saveCursor();
  }

  carries(event: AnyStoredEvent): boolean {
    return this.categories.includes(event.category);
  }

  /** Empty because everything in it grew old is no loss; empty although younger events were there is one. */
  private async synchroniseEmpty(state: EventStreamState, cursor: RelayCursor | null): Promise<void> {
    if (cursor === null || cursor.lastPosition === 0n) {
      if (state.lastSequence > 0) return this.begin('purged');
    } else if (state.lastSequence === 0 || !(await this.hasAged(cursor.lastPosition))) {
      return this.begin('purged');
    }
    this.generation = state.generation ?? '';
    this.created = state.created;
    this.lastPosition = cursor?.lastPosition ?? 0n;
    this.lastSequence = state.lastSequence;
    await this.saveCursor();
  }

  /** Missing in the middle, at the end, or in front without age or want of room as the reason. */
  private async hasHoles(state: EventStreamState): Promise<boolean> {
    if (state.deleted > 0 || state.beforeFirst === null) return true;
    return state.beforeFirst > 0n && state.hasRoom && !(await this.hasAged(state.beforeFirst));
  }

  private async hasAged(position: bigint): Promise<boolean> {
    const [event] = await this.parts.store.readAll({ after: position - 1n, limit: 1 });
    return (
      event !== undefined && event.globalPosition === position && event.recordedAtMs < Date.now() - this.parts.maxAgeMs
    );
  }

  /** An empty stream of a new generation, to be filled from the log's beginning. @param reason null = first start */
  private async begin(reason: RewindReason | null): Promise<void> {
    if (reason !== null) await this.rewound(reason, 0n);
    this.generation = newId();
    this.created = null;
    this.lastPosition = 0n;
    this.lastSequence = 0;
    // The generation is known before the stream exists: a crash in between makes the stream once more, never half.
    await this.saveCursor();
    this.created = (await this.parts.writer.recreate(this.generation)).created;
    await this.saveCursor();
  }

  private async assertInLog(position: bigint, eventHash: string): Promise<void> {
    const [event] = await this.parts.store.readAll({ after: position - 1n, limit: 1 });
    if (event?.globalPosition === position && event.eventHash === eventHash) return;
    throw new AheadOfLog(this.name, position, (await this.parts.store.head()).position);
  }

  private async rewound(reason: RewindReason, from: bigint): Promise<void> {
    const eventId = newId();
    await this.parts.store.append({
      writes: [
        {
          streamId: streamId('relay', this.name),
          expected: 'any',
          events: [
            {
              eventId,
              type: 'RelayRewound',
              tenantId: SYSTEM_TENANT_ID,
              occurredAtMs: Date.now(),
              actor: 'app:relay',
              correlationId: eventId,
              causationId: null,
              payload: {
                jetStreamStream: this.name,
                generation: this.generation,
                reason,
                fromPosition: from.toString(),
              },
            },
          ],
        },
      ],
    });
    this.parts.onRewound(this.name, reason, from);
  }

  private async saveCursor(): Promise<void> {
    this.isSaved = true;
    this.savedAtMs = Date.now();
    await this.parts.cursors.save(
      {
        jetStream: this.name,
        generation: this.generation,
        brokerCreated: this.created,
        lastPosition: this.lastPosition,
        lastSequence: BigInt(this.lastSequence),
      },
      this.parts.epoch,
    );
  }
}
