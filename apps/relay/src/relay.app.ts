import { LogListener } from '#hotbed/event-store';
import { Broker } from '#hotbed/messaging';
import { closeOnFailure, nestApp, type CreateApp, type HostedApp } from '#hotbed/runtime';
import { loadRelayConfig } from './relay.config';
import { RelayModule } from './relay.module';

/** Connects first, so that what is wrong with database or broker is said in one line before Nest begins. */
export const createRelayApp: CreateApp = (env, host) => {
  const config = loadRelayConfig(env);
  const logger = host.logger.child({ app: 'relay' });
  let app: HostedApp | null = null;
  return {
    name: 'relay',
    async start() {
      await closeOnFailure(async (keep) => {
        const listener = keep(await LogListener.start(config.databaseUrl));
        const onStatus = (line: string) => logger.info({ line }, 'broker');
        const broker = keep(await Broker.connect({ ...config.nats, name: 'hotbed-relay', onStatus }));
        broker.assertJetStream();
        const starting = nestApp('relay', RelayModule.register(config, { listener, broker }, host), host);
        await starting.start();
        app = starting;
      });
    },
    stop: async () => app?.stop(),
  };
};
