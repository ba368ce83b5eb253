import { LogListener } from '#hotbed/event-store';
import { Broker } from '#hotbed/messaging';
import { closeOnFailure, nestApp, type CreateApp, type HostedApp } from '#hotbed/runtime';
import { loadIngestConfig } from './ingest.config';
import { IngestModule } from './ingest.module';

/** Connects first, so that what is wrong with database or broker is said in one line before Nest begins. */
export const createIngestApp: CreateApp = (env, host) => {
  const config = loadIngestConfig(env);
  let app: HostedApp | null = null;
  return {
    name: 'ingest',
    async start() {
      await closeOnFailure(async (keep) => {
        const listener = keep(await LogListener.start(config.databaseUrl));
        const broker = keep(await Broker.connect({ ...config.nats, name: 'ingest' }));
        broker.assertJetStream();
        const starting = nestApp('ingest', IngestModule.register(config, { listener, broker }, host), host);
        await starting.start();
        app = starting;
      });
    },
    stop: async () => app?.stop(),
  };
};
