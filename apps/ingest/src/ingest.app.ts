import { LogListener } from '#hotbed/event-store';
import { Broker } from '#hotbed/messaging';
import { nestApp, type CreateApp, type HostedApp } from '#hotbed/runtime';
import { loadIngestConfig } from './ingest.config';
import { IngestModule } from './ingest.module';

/** Connects first, so that what is wrong with database or broker is said in one line before Nest begins. */
export const createIngestApp: CreateApp = (env, host) => {
  const config = loadIngestConfig(env);
  let app: HostedApp | null = null;
  return {
    name: 'ingest',
    async start() {
      const listener = await LogListener.start(config.databaseUrl);
      const broker = await Broker.connect({ ...config.nats, name: 'ingest' });
      broker.assertJetStream();
      app = nestApp('ingest', IngestModule.register(config, { listener, broker }, host), host);
      await app.start();
    },
    stop: async () => app?.stop(),
  };
};
