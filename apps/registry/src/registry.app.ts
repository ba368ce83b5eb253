import { LogListener } from '#hotbed/event-store';
import { Broker } from '#hotbed/messaging';
import { closeOnFailure, nestApp, type CreateApp, type HostedApp } from '#hotbed/runtime';
import { loadRegistryConfig } from './registry.config';
import { RegistryModule } from './registry.module';

/** Connects first, so that what is wrong with database or broker is said in one line before Nest begins. */
export const createRegistryApp: CreateApp = (env, host) => {
  const config = loadRegistryConfig(env);
  let app: HostedApp | null = null;
  return {
    name: 'registry',
    async start() {
      await closeOnFailure(async (keep) => {
        const listener = keep(await LogListener.start(config.databaseUrl));
        const broker = keep(await Broker.connect({ ...config.nats, name: 'registry' }));
        const starting = nestApp('registry', RegistryModule.register(config, { listener, broker }, host), host);
        await starting.start();
        app = starting;
      });
    },
    stop: async () => app?.stop(),
  };
};
