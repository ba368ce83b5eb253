import { createServer } from 'node:net';
import { once } from 'node:events';
import { Registry } from 'prom-client';
import { withTestDatabase } from '#hotbed/event-store/testing';
import { until, withTestBroker } from '#hotbed/messaging/testing';
import { freePort, Health, silentLogger } from '#hotbed/runtime';
import { createGatewayApp } from './gateway.app';
import { startEnvironment } from './testing/start-environment';

jest.setTimeout(60_000);

describe('a gateway that cannot start', () => {
  const db = withTestDatabase();
  const broker = withTestBroker();

  const start = async (env: NodeJS.ProcessEnv): Promise<void> => {
    const app = await createGatewayApp(
      { ...startEnvironment(db, broker), ...env },
      { logger: silentLogger(), metrics: new Registry(), health: new Health() },
    );
    await app.start();
  };
  const leavesNothingOpen = () =>
    until('no session of the gateway is left', async () => {
      const { rows } = await db.pool.query<{ count: bigint }>(
        `SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND application_name <> 'hotbed-test'`,
      );
      return Number(rows[0]!.count) === 0;
    });

  it('says that the broker is missing, and closes what it had opened', async () => {
    const nobody = `nats://127.0.0.1:${await freePort()}`;
    await expect(start({ HOTBED_NATS_URL: nobody })).rejects.toMatchObject({ code: 'broker_unreachable' });
    await leavesNothingOpen();
  });

  it('says that its port is taken, and closes what it had opened', async () => {
    const other = createServer().listen(0, '127.0.0.1');
    await once(other, 'listening');
    const { port } = other.address() as { port: number };
    await expect(start({ HOTBED_HTTP_PORT: String(port) })).rejects.toMatchObject({ code: 'port_in_use' });
    await leavesNothingOpen();
    other.close();
  });
});
