import {
  DomainError,
  NotFound,
  Unavailable,
  type AnyStoredEvent,
  type BlobStore,
  type ConsumerLane,
  type DeadLetter,
  type LaneHandler,
  type ResumedLane,
  type Transactions,
  type UnitOfWork,
} from '#hotbed/contracts';
import { EVENT_COLUMNS, decodeEvent, type EventRow } from './decode-event';

interface LaneRow {
  version: bigint;
  parked: boolean;
}

/** Events handled in one transaction; a consumer that is new to a long stream takes several. */
const BATCH = 256;

/**
 * 1. The cursor and every effect of the handler commit together or not at all.
 * 2. Events of a stream are handled in order, none twice, none left out, whatever the broker does.
 * 3. The lane's row lock is taken first, the log's head lock last (see es.append).
 */
export class PgConsumerLane implements ConsumerLane, DeadLetter {
  constructor(
    private readonly transactions: Transactions,
    private readonly blobs: BlobStore,
  ) {}

  /** @throws Conflict `lane_parked`; Unavailable `event_not_visible` when the log ends before throughVersion */
  async advance(
    consumer: string,
    streamId: string,
    throughVersion: bigint,
    handler: LaneHandler,
  ): Promise<'handled' | 'up_to_date'> {
    let handled = false;
    for (;;) {
      const reached = await this.transactions.run(async (uow) => {
        const lane = await lockLane(uow, consumer, streamId);
        if (lane.parked) {
          throw new DomainError(
            'Conflict',
            'lane_parked',
            `consumer ${consumer} has parked ${streamId} at version ${lane.version}; resume it after the cause is mended`,
            { context: { consumer, streamId } },
          );
        }
        if (lane.version >= throughVersion) return lane.version;
        const events = await this.readLane(uow, streamId, lane.version, throughVersion);
        const last = events.at(-1)!.streamVersion;
        await uow.query(
          `UPDATE es.consumer_lane SET version = $3, failed_version = NULL, attempts = 0, last_error = NULL
           WHERE consumer = $1 AND stream_id = $2`,
          [consumer, streamId, last],
        );
        await handler(events, uow);
        handled = true;
        return last;
      });
      if (reached >= throughVersion) return handled ? 'handled' : 'up_to_date';
    }
  }

  private async readLane(uow: UnitOfWork, streamId: string, after: bigint, through: bigint): Promise<AnyStoredEvent[]> {
    const rows = await uow.query<EventRow>(
      `SELECT ${EVENT_COLUMNS} FROM es.events WHERE stream_id = $1 AND stream_version > $2 AND stream_version <= $3
       ORDER BY stream_version LIMIT ${BATCH}`,
      [streamId, after, through],
    );
    if (rows.length === 0) {
      throw new Unavailable('event_not_visible', `${streamId} has no event ${through}; was the database restored?`, {
        retryAfterMs: 1000,
      });
    }
    const events: AnyStoredEvent[] = [];
    for (const row of rows) events.push(await decodeEvent(row, this.blobs));
    return events;
  }

  recordFailure(consumer: string, streamId: string, version: bigint, error: string): Promise<number> {
    return this.transactions.run(async (uow) => {
      await lockLane(uow, consumer, streamId);
      const rows = await uow.query<{ attempts: number }>(
        `UPDATE es.consumer_lane
         SET attempts = CASE WHEN failed_version = $3 THEN attempts + 1 ELSE 1 END, failed_version = $3, last_error = $4
         WHERE consumer = $1 AND stream_id = $2 RETURNING attempts`,
        [consumer, streamId, version, storableText(error)],
      );
      return rows[0]!.attempts;
    });
  }

  park(consumer: string, streamId: string, version: bigint, error: string): Promise<void> {
    return this.transactions.run(async (uow) => {
      await lockLane(uow, consumer, streamId);
      const rows = await uow.query<{ attempts: number }>(
        `UPDATE es.consumer_lane SET parked = true, last_error = $3 WHERE consumer = $1 AND stream_id = $2
         RETURNING attempts`,
        [consumer, streamId, storableText(error)],
      );
      await uow.query(
        `INSERT INTO es.dead_letter (consumer, stream_id, version, error, attempts) VALUES ($1, $2, $3, $4, $5)
         ON CONFLICT (consumer, stream_id, version)
         DO UPDATE SET error = excluded.error, attempts = excluded.attempts, parked_at = now(), resolved_at = NULL`,
        [consumer, streamId, version, storableText(error), rows[0]!.attempts],
      );
    });
  }

  /**
   * Opens a parked lane again; its consumer finds it among the `resumed` and works it off in order from the log.
   * @throws NotFound when the consumer has not parked the stream
   */
  resume(consumer: string, streamId: string): Promise<void> {
    return this.transactions.run(async (uow) => {
      const opened = await uow.query(
        `UPDATE es.consumer_lane SET parked = false, failed_version = NULL, attempts = 0, last_error = NULL
         WHERE consumer = $1 AND stream_id = $2 AND parked RETURNING stream_id`,
        [consumer, streamId],
      );
      if (opened.length === 0) throw new NotFound('parked lane', `${consumer} ${streamId}`, 'see hotbed lanes list');
      await uow.query(
        `UPDATE es.dead_letter SET resolved_at = now()
         WHERE consumer = $1 AND stream_id = $2 AND resolved_at IS NULL`,
        [consumer, streamId],
      );
    });
  }

  resumed(consumer: string): Promise<ResumedLane[]> {
    return this.transactions.run((uow) =>
      uow.query<ResumedLane>(
        `SELECT stream_id AS "streamId", max(d.version) AS "failedVersion",
                (SELECT max(stream_version) FROM es.events e WHERE e.stream_id = d.stream_id) AS "streamVersion"
         FROM es.dead_letter d JOIN es.consumer_lane l USING (consumer, stream_id)
         WHERE consumer = $1 AND d.resolved_at IS NOT NULL AND d.version > l.version AND NOT l.parked
         GROUP BY stream_id ORDER BY stream_id`,
        [consumer],
      ),
    );
  }

  /** Messages set aside and not yet resolved, oldest first; of one consumer, or of all. */
  deadLetters(consumer: string | null = null): Promise<DeadLetterEntry[]> {
    return this.transactions.run((uow) =>
      uow.query<DeadLetterEntry>(
        `SELECT consumer, stream_id AS "streamId", version, error, attempts, parked_at AS "parkedAt" FROM es.dead_letter
         WHERE ($1::text IS NULL OR consumer = $1) AND resolved_at IS NULL ORDER BY parked_at, consumer, stream_id`,
        [consumer],
      ),
    );
  }
}

export interface DeadLetterEntry {
  consumer: string;
  streamId: string;
  version: bigint;
  error: string;
  attempts: number;
  parkedAt: Date;
}

async function lockLane(uow: UnitOfWork, consumer: string, streamId: string): Promise<LaneRow> {
  await uow.query(`INSERT INTO es.consumer_lane (consumer, stream_id) VALUES ($1, $2) ON CONFLICT DO NOTHING`, [
    consumer,
    streamId,
  ]);
  const rows = await uow.query<LaneRow>(
    `SELECT version, parked FROM es.consumer_lane WHERE consumer = $1 AND stream_id = $2 FOR UPDATE`,
    [consumer, streamId],
  );
  return rows[0]!;
}

/** An error's text may hold anything; PostgreSQL takes no U+0000. */
function storableText(text: string): string {
  return text.replaceAll('\u0000', '\\u0000').toWellFormed();
}
