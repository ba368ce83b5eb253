import type { MigrationInterface, QueryRunner } from 'typeorm';
import { APP_ROLE, asOwner } from './as-owner';

/**
 * The workers' work list: operations accepted but not applied, requests without an answer. Written by the append
 * function alone, in the transaction of the events that it mirrors.
 */
export class CreateWorkList1764500000004 implements MigrationInterface {
  async up(runner: QueryRunner): Promise<void> {
    await asOwner(
      runner,
      `CREATE TABLE es.adapter_head (
        adapter_id uuid PRIMARY KEY,
        next_op_index bigint NOT NULL DEFAULT 1,
        applied_op_index bigint NOT NULL DEFAULT 0,
        lease_epoch bigint NOT NULL DEFAULT 0,
        CHECK (applied_op_index >= 0 AND next_op_index > applied_op_index)
      ) WITH (fillfactor = 70)`,
      `CREATE INDEX adapter_head_unapplied ON es.adapter_head (adapter_id)
        WHERE next_op_index > applied_op_index + 1`,
      `CREATE TABLE es.accepted_operation (
        adapter_id uuid NOT NULL,
        op_index bigint NOT NULL,
        stream_version bigint NOT NULL,
        PRIMARY KEY (adapter_id, op_index)
      )`,
      `COMMENT ON TABLE es.accepted_operation IS
        'where operation n stands in its stream: payloads may lie in the blob store, out of reach of an index'`,
      `CREATE TABLE es.open_request (
        request_id uuid NOT NULL,
        prompt_index integer NOT NULL CHECK (prompt_index >= 0),
        stream_id text COLLATE "C" NOT NULL,
        request_version bigint NOT NULL,
        tenant_id uuid NOT NULL,
        adapter_id uuid,
        op_index bigint,
        opened_order bigint GENERATED ALWAYS AS IDENTITY,
        PRIMARY KEY (request_id, prompt_index)
      )`,
      `CREATE INDEX open_request_order ON es.open_request (opened_order)`,
      `CREATE TABLE es.answered_request (
        request_id uuid NOT NULL,
        prompt_index integer NOT NULL,
        PRIMARY KEY (request_id, prompt_index)
      )`,
      `GRANT SELECT ON es.adapter_head, es.accepted_operation, es.open_request, es.answered_request TO ${APP_ROLE}`,
    );
  }

  async down(runner: QueryRunner): Promise<void> {
    await asOwner(runner, `DROP TABLE es.adapter_head, es.accepted_operation, es.open_request, es.answered_request`);
  }
}
