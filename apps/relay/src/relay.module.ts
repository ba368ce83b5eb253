import { Module, type DynamicModule } from '@nestjs/common';
import { createPool, FileBlobStore, PgEventStore, RelayCursors, type LogListener } from '#hotbed/event-store';
import { EVENT_STREAMS, EventStreamWriter, type Broker } from '#hotbed/messaging';
import type { AppHost } from '#hotbed/runtime';
import { Leadership } from './leadership';
import type { RelayConfig } from './relay.config';
import { RelayHost } from './relay-host';

type Pool = ReturnType<typeof createPool>;
const POOL = Symbol('pool');

export interface RelayConnections {
  listener: LogListener;
  broker: Broker;
}

@Module({})
export class RelayModule {
  static register(config: RelayConfig, { listener, broker }: RelayConnections, host: AppHost): DynamicModule {
    const logger = host.logger.child({ app: 'relay' });
    return {
      module: RelayModule,
      providers: [
        {
          provide: POOL,
          useFactory: () =>
            createPool(config.databaseUrl, {
              applicationName: 'hotbed-relay',
              max: 8,
              onError: (error) => logger.warn({ err: error }, 'an idle database connection broke'),
            }),
        },
        {
          provide: RelayHost,
          useFactory: (pool: Pool) =>
            new RelayHost({
              store: new PgEventStore(pool, new FileBlobStore({ root: config.blobFolder })),
              cursors: new RelayCursors(pool),
              writers: EVENT_STREAMS.map((stream) => new EventStreamWriter(broker, stream, config.limits)),
              leadership: new Leadership(config.databaseUrl, pool),
              wake: listener,
              maxAgeMs: config.limits.maxAgeMs,
              host: { ...host, logger },
              onReconnect: (onReconnected) => broker.onReconnect(onReconnected),
              close: async () => {
                await broker.close();
                await listener.close();
                await pool.end();
              },
            }),
          inject: [POOL],
        },
      ],
    };
  }
}
