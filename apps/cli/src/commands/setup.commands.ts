import type { Command } from 'commander';
import { migrate } from '#hotbed/event-store';
import { databaseConfigShape, loadConfig, natsConfigShape, toNatsConfig } from '#hotbed/runtime';
import { newApiKey, issueAdminKey } from '../platform/admin-key';
import { print } from '../terminal/print';

/** What an operator does once where the services run apart (compose, Kubernetes): `hotbed up` does both by itself. */
export function addSetupCommands(program: Command): void {
  program
    .command('migrate')
    .description('bring the database of HOTBED_DATABASE_OWNER_URL up to date')
    .action(async () => {
      const { ownerUrl } = loadConfig(
        { HOTBED_DATABASE_OWNER_URL: databaseConfigShape.HOTBED_DATABASE_URL },
        (values) => ({ ownerUrl: values.HOTBED_DATABASE_OWNER_URL }),
      );
      await migrate(ownerUrl);
      print({ migrated: true }, () => 'the database is up to date');
    });

  program
    .command('bootstrap')
    .description('make the tenant "default" and an admin key for it, over the broker; the key is shown once')
    .action(async () => {
      const { nats } = loadConfig(natsConfigShape, (values) => ({ nats: toNatsConfig(values, 'admin') }));
      const key = newApiKey();
      await issueAdminKey(nats, key);
      print({ key }, () => `API key ${key}  (shown once)`);
    });
}
