import type { MigrationInterface, QueryRunner } from 'typeorm';
import { asOwner } from './as-owner';

/** Rewards are shown to their own tenant only. The rows come back as the projection's next version folds the log. */
export class AddTenantToRewardGroups1764500000210 implements MigrationInterface {
  async up(runner: QueryRunner): Promise<void> {
    await asOwner(
      runner,
      'DELETE FROM registry.reward_group',
      'ALTER TABLE registry.reward_group ADD COLUMN tenant_id uuid NOT NULL',
    );
  }

  async down(runner: QueryRunner): Promise<void> {
    await asOwner(runner, 'ALTER TABLE registry.reward_group DROP COLUMN tenant_id');
  }
}
