import type { MigrationInterface, QueryRunner } from 'typeorm';
import { APP_ROLE, asOwner } from './as-owner';

/** The log itself: head, streams, events. Text keys compare by bytes, so that every process locks in one order. */
export class CreateLog1764500000002 implements MigrationInterface {
  async up(runner: QueryRunner): Promise<void> {
    await asOwner(
      runner,
      `CREATE SCHEMA es`,
      `GRANT USAGE ON SCHEMA es TO ${APP_ROLE}`,
      `CREATE TABLE es.log_head (
        only_row boolean PRIMARY KEY DEFAULT true CHECK (only_row),
        position bigint NOT NULL,
        hash bytea NOT NULL CHECK (octet_length(hash) = 32),
        recorded_at_ms bigint NOT NULL
      )`,
      `INSERT INTO es.log_head (position, hash, recorded_at_ms) VALUES (0, decode(repeat('00', 32), 'hex'), 0)`,
      `CREATE TABLE es.streams (
        stream_id text COLLATE "C" PRIMARY KEY,
        category text COLLATE "C" NOT NULL,
        version bigint NOT NULL CHECK (version >= 0)
      ) WITH (fillfactor = 70)`,
      `COMMENT ON TABLE es.streams IS 'version 0: named by a writer that was refused; such a stream does not exist'`,
      `CREATE TABLE es.events (
        global_position bigint PRIMARY KEY CHECK (global_position > 0),
        event_id uuid NOT NULL CONSTRAINT events_event_id_key UNIQUE,
        stream_id text COLLATE "C" NOT NULL,
        stream_version bigint NOT NULL CHECK (stream_version > 0),
        category text COLLATE "C" NOT NULL,
        type text COLLATE "C" NOT NULL,
        schema_version integer NOT NULL CHECK (schema_version > 0),
        tenant_id uuid NOT NULL,
        occurred_at_ms bigint NOT NULL,
        recorded_at_ms bigint NOT NULL,
        actor text NOT NULL,
        correlation_id text NOT NULL,
        causation_id text,
        header_bytes bytea NOT NULL,
        payload_bytes bytea NOT NULL,
        data jsonb,
        payload_hash bytea NOT NULL CHECK (octet_length(payload_hash) = 32),
        prev_hash bytea NOT NULL CHECK (octet_length(prev_hash) = 32),
        event_hash bytea NOT NULL CHECK (octet_length(event_hash) = 32),
        CONSTRAINT events_stream_version_key UNIQUE (stream_id, stream_version)
      )`,
      `CREATE INDEX events_category_position ON es.events (category, global_position)`,
      `CREATE INDEX events_correlation ON es.events (correlation_id)`,
      `CREATE FUNCTION es.refuse_change() RETURNS trigger LANGUAGE plpgsql AS $$
        BEGIN
          RAISE EXCEPTION 'es.events is append-only: % refused', TG_OP USING ERRCODE = 'integrity_constraint_violation';
        END $$`,
      `CREATE TRIGGER events_append_only BEFORE UPDATE OR DELETE ON es.events
        FOR EACH ROW EXECUTE FUNCTION es.refuse_change()`,
      `CREATE TRIGGER events_no_truncate BEFORE TRUNCATE ON es.events
        FOR EACH STATEMENT EXECUTE FUNCTION es.refuse_change()`,
      `GRANT SELECT ON es.log_head, es.streams, es.events TO ${APP_ROLE}`,
    );
  }

  async down(runner: QueryRunner): Promise<void> {
    await asOwner(runner, `DROP SCHEMA es CASCADE`);
  }
}
