import { LogListener } from '#hotbed/event-store';
import { Broker } from '#hotbed/messaging';
import { nestApp, type CreateApp, type HostedApp } from '#hotbed/runtime';
import { loadRegistryConfig } from './registry.config';
import { RegistryModule } from './registry.module';

/** Connects first, so that what is wrong with database or broker is said in one line before Nest begins. */
export const createRegistryApp: CreateApp = (env, host) => {
  const config = loadRegistryConfig(env);
  let app: HostedApp | null = null;
  return {
    name: 'registry',
    async start() {
      const listener = await LogListener.start(config.databaseUrl);
      const broker = await Broker.connect({ ...config.nats, name: 'registry' });
      app = nestApp('registry', RegistryModule.register(config, { listener, broker }, host), host);
      await app.start();
    },
    stop: async () => app?.stop(),
  };
};
