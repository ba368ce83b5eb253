import type { TestDatabase } from '#hotbed/event-store/testing';
import type { TestBroker } from '#hotbed/messaging/testing';

/** What the gateway starts with in a test: its own broker user, any free port. */
export function startEnvironment(
  db: Pick<TestDatabase, 'url' | 'blobFolder'>,
  broker: Pick<TestBroker, 'url' | 'users'>,
): Record<string, string> {
  const { user, password } = broker.users.credentials('gateway');
  return {
    HOTBED_DATABASE_URL: db.url,
    HOTBED_BLOB_DIR: db.blobFolder,
    HOTBED_NATS_URL: broker.url,
    HOTBED_NATS_USER: user,
    HOTBED_NATS_PASSWORD: password,
    HOTBED_HTTP_PORT: '0',
  };
}
