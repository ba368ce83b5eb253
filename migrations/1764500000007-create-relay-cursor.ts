import type { MigrationInterface, QueryRunner } from 'typeorm';
import { APP_ROLE, asOwner } from './as-owner';

/** How far the relay is in each JetStream stream: a hint and a loss detector, never ahead of the broker. */
export class CreateRelayCursor1764500000007 implements MigrationInterface {
  async up(runner: QueryRunner): Promise<void> {
    await asOwner(
      runner,
      `CREATE TABLE es.relay_cursor (
        jet_stream text COLLATE "C" PRIMARY KEY,
        generation text NOT NULL,
        broker_created text,
        last_position bigint NOT NULL,
        last_sequence bigint NOT NULL,
        epoch bigint NOT NULL
      ) WITH (fillfactor = 70)`,
      `COMMENT ON COLUMN es.relay_cursor.broker_created IS 'creation time that the broker reports for this generation'`,
      `GRANT SELECT, INSERT, UPDATE ON es.relay_cursor TO ${APP_ROLE}`,
    );
  }

  async down(runner: QueryRunner): Promise<void> {
    await asOwner(runner, `DROP TABLE es.relay_cursor`);
  }
}
