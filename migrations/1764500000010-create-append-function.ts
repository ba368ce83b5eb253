import type { MigrationInterface, QueryRunner } from 'typeorm';
import { APP_ROLE, asOwner } from './as-owner';

/**
 * es.append: the only way into the log. One round trip, many items, all or nothing per item.
 *
 * p_items: [{ writes: [{stream, category, expected, count}], ids: [event id], key: {tenant, key, hash, answer} | null,
 *             names: [{tenant, kind, name, id}],
 *             heads: [{change: create|accept|apply, adapter, first, last, versions: [offset in its write], op, epoch}],
 *             requests: [{change: open|answer, request, prompts: [n], stream, offset, tenant, adapter, op}] }]
 * p_headers, p_payloads: the bytes of all events, in the order of items, writes, events.
 * Returns { base: head position before, items: [{streams: [{stream, first, last}], offset, count} | {answer} | {error}] }.
 *
 * 1. Every lock is taken before the first change, class by class, each class sorted: keys, names, new streams,
 *    streams, adapter heads, leases, requests, and the head of the log last. Two calls can therefore never deadlock
 *    among themselves.
 * 2. An item is checked completely before it changes anything, so that a refused item needs no subtransaction.
 * 3. READ COMMITTED: each statement after the locks sees what the previous holder committed.
 * 4. All columns of an event are taken from its hashed header.
 */
export class CreateAppendFunction1764500000010 implements MigrationInterface {
  async up(runner: QueryRunner): Promise<void> {
    await asOwner(
      runner,
      LOCK_KEY,
      APPEND,
      `REVOKE ALL ON FUNCTION es.append(jsonb, bytea[], bytea[]) FROM PUBLIC`,
      `GRANT EXECUTE ON FUNCTION es.append(jsonb, bytea[], bytea[]) TO ${APP_ROLE}`,
    );
  }

  async down(runner: QueryRunner): Promise<void> {
    await asOwner(runner, `DROP FUNCTION es.append(jsonb, bytea[], bytea[])`, `DROP FUNCTION es.lock_key(text)`);
  }
}

/** Always negative: worker identities, the other advisory keys of a database, are positive. */
const LOCK_KEY = `
CREATE FUNCTION es.lock_key(p_text text) RETURNS bigint LANGUAGE sql IMMUTABLE STRICT
AS $$ SELECT hashtextextended(p_text, 0) | (-9223372036854775808)::bigint $$`;

const APPEND = `
CREATE FUNCTION es.append(p_items jsonb, p_headers bytea[], p_payloads bytea[]) RETURNS jsonb
LANGUAGE plpgsql SECURITY DEFINER
SET search_path = es, pg_catalog, pg_temp
SET lock_timeout = '20s'
-- Plans are kept for the session's life, and on a new database they are made while the tables are empty.
SET enable_seqscan = off
SET jit = off
AS $append$
DECLARE
  v_streams text[];
  v_adapters uuid[];
  v_results jsonb := '[]';
  v_item jsonb;
  v_part jsonb;
  v_error jsonb;
  v_done jsonb;
  v_appended jsonb;
  -- Versions of all streams of the call, as its survivors so far leave them; and as the current item would.
  v_versions jsonb;
  v_stream_versions jsonb;
  v_head_state jsonb;
  v_key text;
  v_stored record;
  v_version bigint;
  v_next bigint;
  v_applied bigint;
  v_epoch bigint;
  v_event_id uuid;
  v_read integer := 0;
  v_item_start integer;
  v_count integer;
  -- Survivors, in order: index into the byte arrays, stream, version.
  v_index integer[] := '{}';
  v_stream_of text[] := '{}';
  v_version_of bigint[] := '{}';
  v_kept integer := 0;
  v_head record;
  v_event record;
  v_position bigint;
  v_prev bytea;
  v_recorded bigint;
  v_prev_hashes bytea[] := '{}';
  v_hashes bytea[] := '{}';
  v_payload_hash bytea;
BEGIN
  PERFORM pg_advisory_xact_lock(k.key) FROM (
    SELECT DISTINCT lock_key('command/' || (i -> 'key' ->> 'tenant') || '/' || (i -> 'key' ->> 'key')) AS key
    FROM jsonb_array_elements(p_items) i WHERE i -> 'key' ->> 'key' IS NOT NULL ORDER BY 1) k;

  PERFORM pg_advisory_xact_lock(k.key) FROM (
    SELECT DISTINCT lock_key('name/' || (n ->> 'tenant') || '/' || (n ->> 'kind') || '/' || (n ->> 'name')) AS key
    FROM jsonb_array_elements(p_items) i, jsonb_array_elements(i -> 'names') n ORDER BY 1) k;

  INSERT INTO streams (stream_id, category, version)
    SELECT DISTINCT (w ->> 'stream') COLLATE "C", w ->> 'category', 0
    FROM jsonb_array_elements(p_items) i, jsonb_array_elements(i -> 'writes') w ORDER BY 1
    ON CONFLICT DO NOTHING;

  SELECT array_agg(DISTINCT w ->> 'stream') INTO v_streams
    FROM jsonb_array_elements(p_items) i, jsonb_array_elements(i -> 'writes') w;
  PERFORM 1 FROM streams WHERE stream_id = ANY (v_streams) ORDER BY stream_id FOR UPDATE;
  SELECT jsonb_object_agg(stream_id, version) INTO v_versions FROM streams WHERE stream_id = ANY (v_streams);

  SELECT array_agg(DISTINCT (h ->> 'adapter')::uuid) INTO v_adapters
    FROM jsonb_array_elements(p_items) i, jsonb_array_elements(i -> 'heads') h;
  IF v_adapters IS NOT NULL THEN
    PERFORM 1 FROM adapter_head WHERE adapter_id = ANY (v_adapters) ORDER BY adapter_id FOR UPDATE;
    PERFORM 1 FROM lease WHERE resource = ANY (
      SELECT DISTINCT 'adapter:' || (h ->> 'adapter')
      FROM jsonb_array_elements(p_items) i, jsonb_array_elements(i -> 'heads') h WHERE h ->> 'change' = 'apply')
      ORDER BY resource FOR SHARE;
  END IF;

  PERFORM 1 FROM open_request o WHERE (o.request_id, o.prompt_index) IN (
    SELECT (r ->> 'request')::uuid, p::integer
    FROM jsonb_array_elements(p_items) i, jsonb_array_elements(i -> 'requests') r, jsonb_array_elements_text(r -> 'prompts') p
    WHERE r ->> 'change' = 'answer')
    ORDER BY o.request_id, o.prompt_index FOR UPDATE;

  FOR v_item IN SELECT * FROM jsonb_array_elements(p_items) LOOP
    v_item_start := v_read;
    SELECT v_read + coalesce(sum((w ->> 'count')::integer), 0) INTO v_read
      FROM jsonb_array_elements(v_item -> 'writes') w;
    v_error := NULL;
    v_done := NULL;
    v_appended := '[]';
    v_stream_versions := '{}';
    v_head_state := '{}';

    <<checks>>
    BEGIN
      IF v_item -> 'key' ->> 'key' IS NOT NULL THEN
        SELECT request_hash, answer INTO v_stored FROM command_dedupe
          WHERE tenant_id = (v_item -> 'key' ->> 'tenant')::uuid AND key = v_item -> 'key' ->> 'key';
        IF FOUND THEN
          IF v_stored.request_hash = v_item -> 'key' ->> 'hash' THEN
            v_done := jsonb_build_object('answer', v_stored.answer);
          ELSE
            v_error := jsonb_build_object('code', 'idempotency_conflict', 'key', v_item -> 'key' ->> 'key');
          END IF;
          EXIT checks;
        END IF;
      END IF;

      FOR v_part IN SELECT * FROM jsonb_array_elements(v_item -> 'names') LOOP
        IF EXISTS (SELECT FROM names WHERE tenant_id = (v_part ->> 'tenant')::uuid AND kind = v_part ->> 'kind'
                   AND name = v_part ->> 'name') THEN
          v_error := jsonb_build_object('code', 'name_taken', 'kind', v_part ->> 'kind', 'name', v_part ->> 'name');
          EXIT checks;
        END IF;
      END LOOP;

      FOR v_part IN SELECT * FROM jsonb_array_elements(v_item -> 'writes') LOOP
        v_key := v_part ->> 'stream';
        v_version := coalesce(v_stream_versions ->> v_key, v_versions ->> v_key)::bigint;
        -- In parentheses: PL/pgSQL's IF would end at the first THEN.
        IF NOT (CASE v_part ->> 'expected'
                  WHEN 'any' THEN true
                  WHEN 'none' THEN v_version = 0
                  WHEN 'exists' THEN v_version > 0
                  ELSE v_version = (v_part ->> 'expected')::bigint END) THEN
          v_error := jsonb_build_object('code', 'version_conflict', 'stream', v_key,
                                        'expected', v_part ->> 'expected', 'actual', v_version::text);
          EXIT checks;
        END IF;
        v_count := (v_part ->> 'count')::integer;
        v_appended := v_appended || jsonb_build_object('stream', v_key, 'first', (v_version + 1)::text,
                                                       'last', (v_version + v_count)::text);
        v_stream_versions := v_stream_versions || jsonb_build_object(v_key, v_version + v_count);
      END LOOP;

      SELECT event_id INTO v_event_id FROM events
        WHERE event_id = ANY (ARRAY(SELECT e::uuid FROM jsonb_array_elements_text(v_item -> 'ids') e)) LIMIT 1;
      IF FOUND THEN
        v_error := jsonb_build_object('code', 'event_exists', 'event', v_event_id);
        EXIT checks;
      END IF;

      FOR v_part IN SELECT * FROM jsonb_array_elements(v_item -> 'heads') LOOP
        v_key := v_part ->> 'adapter';
        IF v_head_state ? v_key THEN
          v_next := (v_head_state -> v_key ->> 'next')::bigint;
          v_applied := (v_head_state -> v_key ->> 'applied')::bigint;
        ELSE
          v_next := NULL;
          v_applied := NULL;
          SELECT next_op_index, applied_op_index INTO v_next, v_applied FROM adapter_head
            WHERE adapter_id = v_key::uuid;
        END IF;
        IF v_part ->> 'change' = 'create' THEN
          IF v_next IS NOT NULL THEN
            v_error := jsonb_build_object('code', 'adapter_exists', 'adapter', v_key);
            EXIT checks;
          END IF;
          v_next := 1;
          v_applied := 0;
        ELSIF v_next IS NULL THEN
          v_error := jsonb_build_object('code', 'adapter_not_found', 'adapter', v_key);
          EXIT checks;
        ELSIF v_part ->> 'change' = 'accept' THEN
          IF (v_part ->> 'first')::bigint <> v_next THEN
            v_error := jsonb_build_object('code', 'op_index_conflict', 'adapter', v_key,
                                          'proposed', v_part ->> 'first', 'next', v_next::text);
            EXIT checks;
          END IF;
          v_next := (v_part ->> 'last')::bigint + 1;
        ELSE
          SELECT epoch INTO v_epoch FROM lease WHERE resource = 'adapter:' || v_key;
          IF v_epoch IS DISTINCT FROM (v_part ->> 'epoch')::bigint THEN
            v_error := jsonb_build_object('code', 'lease_lost', 'resource', 'adapter:' || v_key,
                                          'epoch', v_part ->> 'epoch');
            EXIT checks;
          END IF;
          IF (v_part ->> 'op')::bigint <> v_applied + 1 OR v_applied + 1 >= v_next THEN
            v_error := jsonb_build_object('code', 'op_index_conflict', 'adapter', v_key,
                                          'proposed', v_part ->> 'op', 'next', (v_applied + 1)::text);
            EXIT checks;
          END IF;
          v_applied := v_applied + 1;
        END IF;
        v_head_state := v_head_state || jsonb_build_object(v_key, jsonb_build_object('next', v_next, 'applied', v_applied));
      END LOOP;

      FOR v_part IN SELECT * FROM jsonb_array_elements(v_item -> 'requests') LOOP
        FOR v_key IN SELECT * FROM jsonb_array_elements_text(v_part -> 'prompts') LOOP
          IF EXISTS (SELECT FROM answered_request
                     WHERE request_id = (v_part ->> 'request')::uuid AND prompt_index = v_key::integer) THEN
            v_error := jsonb_build_object('code', 'request_answered', 'request', v_part ->> 'request', 'prompt', v_key);
            EXIT checks;
          END IF;
          IF EXISTS (SELECT FROM open_request
                     WHERE request_id = (v_part ->> 'request')::uuid AND prompt_index = v_key::integer)
             = (v_part ->> 'change' = 'open') THEN
            v_error := jsonb_build_object(
              'code', CASE v_part ->> 'change' WHEN 'open' THEN 'request_exists' ELSE 'request_not_found' END,
              'request', v_part ->> 'request', 'prompt', v_key);
            EXIT checks;
          END IF;
        END LOOP;
      END LOOP;
    END;

    IF v_error IS NOT NULL THEN
      v_results := v_results || jsonb_build_object('error', v_error);
      CONTINUE;
    ELSIF v_done IS NOT NULL THEN
      v_results := v_results || v_done;
      CONTINUE;
    END IF;

    IF v_item -> 'key' ->> 'key' IS NOT NULL THEN
      INSERT INTO command_dedupe (tenant_id, key, request_hash, answer)
        VALUES ((v_item -> 'key' ->> 'tenant')::uuid, v_item -> 'key' ->> 'key', v_item -> 'key' ->> 'hash',
                v_item -> 'key' -> 'answer');
    END IF;

    INSERT INTO names (tenant_id, kind, name, id)
      SELECT (n ->> 'tenant')::uuid, n ->> 'kind', n ->> 'name', (n ->> 'id')::uuid
      FROM jsonb_array_elements(v_item -> 'names') n;

    v_versions := v_versions || v_stream_versions;

    FOR v_part IN SELECT * FROM jsonb_array_elements(v_item -> 'heads') LOOP
      v_key := v_part ->> 'adapter';
      IF v_part ->> 'change' = 'create' THEN
        INSERT INTO adapter_head (adapter_id) VALUES (v_key::uuid);
      ELSIF v_part ->> 'change' = 'accept' THEN
        UPDATE adapter_head SET next_op_index = (v_part ->> 'last')::bigint + 1 WHERE adapter_id = v_key::uuid;
        SELECT (a ->> 'first')::bigint INTO v_version FROM jsonb_array_elements(v_appended) a
          WHERE a ->> 'stream' = 'adapter:' || v_key;
        INSERT INTO accepted_operation (adapter_id, op_index, stream_version)
          SELECT v_key::uuid, (v_part ->> 'first')::bigint + o.n - 1, v_version + o.at::bigint
          FROM jsonb_array_elements_text(v_part -> 'versions') WITH ORDINALITY o (at, n);
      ELSE
        UPDATE adapter_head SET applied_op_index = (v_part ->> 'op')::bigint, lease_epoch = (v_part ->> 'epoch')::bigint
          WHERE adapter_id = v_key::uuid;
      END IF;
    END LOOP;

    FOR v_part IN SELECT * FROM jsonb_array_elements(v_item -> 'requests') LOOP
      IF v_part ->> 'change' = 'open' THEN
        SELECT (a ->> 'first')::bigint + (v_part ->> 'offset')::integer INTO v_version
          FROM jsonb_array_elements(v_appended) a WHERE a ->> 'stream' = v_part ->> 'stream';
        INSERT INTO open_request (request_id, prompt_index, stream_id, request_version, tenant_id, adapter_id, op_index)
          SELECT (v_part ->> 'request')::uuid, p::integer, v_part ->> 'stream', v_version, (v_part ->> 'tenant')::uuid,
                 (v_part ->> 'adapter')::uuid, (v_part ->> 'op')::bigint
          FROM jsonb_array_elements_text(v_part -> 'prompts') p;
      ELSE
        WITH answered AS (
          DELETE FROM open_request o USING jsonb_array_elements_text(v_part -> 'prompts') p
          WHERE o.request_id = (v_part ->> 'request')::uuid AND o.prompt_index = p::integer
          RETURNING o.request_id, o.prompt_index)
        INSERT INTO answered_request SELECT * FROM answered;
      END IF;
    END LOOP;

    v_count := v_kept;
    FOR v_part IN SELECT * FROM jsonb_array_elements(v_appended) LOOP
      v_version := (v_part ->> 'first')::bigint;
      -- The loop's own variable is an integer: it counts, versions do not fit.
      FOR i IN 0 .. ((v_part ->> 'last')::bigint - v_version)::integer LOOP
        v_item_start := v_item_start + 1;
        v_kept := v_kept + 1;
        v_index[v_kept] := v_item_start;
        v_stream_of[v_kept] := v_part ->> 'stream';
        v_version_of[v_kept] := v_version + i;
      END LOOP;
    END LOOP;
    v_results := v_results || jsonb_build_object('streams', v_appended, 'offset', v_count, 'count', v_kept - v_count);
  END LOOP;

  IF v_kept = 0 THEN
    RETURN jsonb_build_object('base', '0', 'items', v_results);
  END IF;

  -- Once per stream and call: row versions of one transaction pile up until it commits.
  UPDATE streams s SET version = (v_versions ->> s.stream_id)::bigint
    WHERE s.stream_id = ANY (v_streams) AND s.version <> (v_versions ->> s.stream_id)::bigint;

  SELECT position, hash, recorded_at_ms INTO STRICT v_head FROM log_head FOR UPDATE;
  v_position := v_head.position;
  v_prev := v_head.hash;
  v_recorded := greatest(v_head.recorded_at_ms, floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint);

  FOR v_event IN
    SELECT k.n, k.stream, k.version, b.header, b.payload
    FROM unnest(v_index, v_stream_of, v_version_of) WITH ORDINALITY k (index, stream, version, n)
    JOIN unnest(p_headers, p_payloads) WITH ORDINALITY b (header, payload, index) ON b.index = k.index
    ORDER BY k.n
  LOOP
    v_position := v_position + 1;
    v_prev_hashes[v_event.n] := v_prev;
    v_prev := sha256('\\x686f746265642e6576656e742e3100'::bytea || int8send(v_position) || int8send(v_event.version)
                     || int8send(v_recorded) || v_prev || sha256(v_event.header) || sha256(v_event.payload));
    v_hashes[v_event.n] := v_prev;
  END LOOP;

  INSERT INTO events (global_position, event_id, stream_id, stream_version, category, type, schema_version, tenant_id,
                      occurred_at_ms, recorded_at_ms, actor, correlation_id, causation_id, header_bytes, payload_bytes,
                      data, payload_hash, prev_hash, event_hash)
    SELECT v_head.position + k.n, (h.header ->> 'eventId')::uuid,
           -- A header that names another stream than the one that was checked and locked fails on NOT NULL.
           CASE WHEN h.header ->> 'streamId' = k.stream THEN k.stream END,
           k.version, h.header ->> 'category', h.header ->> 'type', (h.header ->> 'schemaVersion')::integer,
           (h.header ->> 'tenantId')::uuid, (h.header ->> 'occurredAtMs')::bigint, v_recorded, h.header ->> 'actor',
           h.header ->> 'correlationId', h.header ->> 'causationId', b.header, b.payload,
           CASE WHEN h.header ->> 'keyId' IS NULL THEN convert_from(b.payload, 'UTF8')::jsonb END,
           sha256(b.payload), k.prev_hash, k.hash
    FROM unnest(v_index, v_stream_of, v_version_of, v_prev_hashes, v_hashes)
           WITH ORDINALITY k (index, stream, version, prev_hash, hash, n)
    JOIN unnest(p_headers, p_payloads) WITH ORDINALITY b (header, payload, index) ON b.index = k.index
    CROSS JOIN LATERAL (SELECT convert_from(b.header, 'UTF8')::jsonb AS header OFFSET 0) h
    ORDER BY k.n;

  UPDATE log_head SET position = v_position, hash = v_prev, recorded_at_ms = v_recorded;
  PERFORM pg_notify('hotbed_log', v_position::text);
  RETURN jsonb_build_object('base', v_head.position::text, 'items', v_results);
END
$append$`;
