import type { MigrationInterface, QueryRunner } from 'typeorm';
import { APP_ROLE, asOwner } from './as-owner';

/** How far each consumer is in each stream, and the messages that were set aside. */
export class CreateConsumerLanes1764500000005 implements MigrationInterface {
  async up(runner: QueryRunner): Promise<void> {
    await asOwner(
      runner,
      `CREATE TABLE es.consumer_lane (
        consumer text COLLATE "C" NOT NULL,
        stream_id text COLLATE "C" NOT NULL,
        version bigint NOT NULL DEFAULT 0,
        parked boolean NOT NULL DEFAULT false,
        failed_version bigint,
        attempts integer NOT NULL DEFAULT 0,
        last_error text,
        PRIMARY KEY (consumer, stream_id)
      ) WITH (fillfactor = 70)`,
      `CREATE INDEX consumer_lane_parked ON es.consumer_lane (consumer) WHERE parked`,
      `CREATE TABLE es.dead_letter (
        consumer text COLLATE "C" NOT NULL,
        stream_id text COLLATE "C" NOT NULL,
        version bigint NOT NULL,
        error text NOT NULL,
        attempts integer NOT NULL,
        parked_at timestamptz NOT NULL DEFAULT now(),
        resolved_at timestamptz,
        PRIMARY KEY (consumer, stream_id, version)
      )`,
      `GRANT SELECT, INSERT, UPDATE ON es.consumer_lane, es.dead_letter TO ${APP_ROLE}`,
    );
  }

  async down(runner: QueryRunner): Promise<void> {
    await asOwner(runner, `DROP TABLE es.consumer_lane, es.dead_letter`);
  }
}
