import { LeaseLost } from '#hotbed/contracts';
import type { Pool } from 'pg';
import { withDomainErrors } from './database-errors';

/** How far the relay is in one JetStream stream. Positions of the log; sequences of the broker. */
export interface RelayCursor {
  jetStream: string;
  generation: string;
  /** Creation time that the broker reports for this generation; null before it is known. */
  brokerCreated: string | null;
  lastPosition: bigint;
  lastSequence: bigint;
}

/** The relay's memory between runs. Written under its lease epoch: an older relay that wakes up late is refused. */
export class RelayCursors {
  constructor(private readonly pool: Pool) {}

  async load(jetStream: string): Promise<RelayCursor | null> {
    const { rows } = await withDomainErrors(() =>
      this.pool.query<RelayCursor>(
        `SELECT jet_stream AS "jetStream", generation, broker_created AS "brokerCreated",
                last_position AS "lastPosition", last_sequence AS "lastSequence"
         FROM es.relay_cursor WHERE jet_stream = $1`,
        [jetStream],
      ),
    );
    return rows[0] ?? null;
  }

  /** @throws LeaseLost when a relay with a newer epoch has written */
  async save(cursor: RelayCursor, epoch: bigint): Promise<void> {
    const { rowCount } = await withDomainErrors(() =>
      this.pool.query(
        `INSERT INTO es.relay_cursor AS c
           (jet_stream, generation, broker_created, last_position, last_sequence, epoch)
         VALUES ($1, $2, $3, $4, $5, $6)
         ON CONFLICT (jet_stream) DO UPDATE
           SET generation = excluded.generation, broker_created = excluded.broker_created,
               last_position = excluded.last_position, last_sequence = excluded.last_sequence, epoch = excluded.epoch
           WHERE c.epoch <= excluded.epoch`,
        [cursor.jetStream, cursor.generation, cursor.brokerCreated, cursor.lastPosition, cursor.lastSequence, epoch],
      ),
    );
    if (rowCount === 0) throw new LeaseLost(`relay cursor ${cursor.jetStream}`, epoch.toString());
  }
}
