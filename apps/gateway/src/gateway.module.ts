import { Module, type DynamicModule, type OnApplicationShutdown } from '@nestjs/common';
import { APP_GUARD } from '@nestjs/core';
import type { BlobStore } from '#hotbed/contracts';
import { createPool, FileBlobStore, PgEventStore, type LogListener } from '#hotbed/event-store';
import { RpcClient, type Broker } from '#hotbed/messaging';
import type { AppHost, Health } from '#hotbed/runtime';
import { AdaptersController } from './adapters/adapters.controller';
import { BLOB_STORE, PeftFileHandler } from './adapters/peft-file.handler';
import { ApiKeyGuard } from './auth/api-key.guard';
import { EVENT_STORE, EventFeed } from './events/event-feed';
import { EventsController } from './events/events.controller';
import { LOG_WATCH, LogWatch } from './events/log-watch';
import { ExperimentsController } from './experiments/experiments.controller';
import type { GatewayConfig } from './gateway.config';
import { COMMANDS_PORT, RpcCommands } from './http/commands';
import { HEALTH, METRICS, OperationsController } from './operations/operations.controller';
import { SampleHandler } from './samples/sample.handler';
import { SamplesController } from './samples/samples.controller';
import { StreamsController } from './streams/streams.controller';
import { TenantsController } from './tenants/tenants.controller';

type Pool = ReturnType<typeof createPool>;

const POOL = Symbol('pool');

export interface GatewayConnections {
  listener: LogListener;
  broker: Broker;
}

/** Closes what the doors stood on, after the last request was answered. */
class Foundations implements OnApplicationShutdown {
  constructor(
    private readonly pool: Pool,
    private readonly connections: GatewayConnections,
    health: Health,
  ) {
    health.readiness('gateway broker', () => connections.broker.assertConnected());
  }

  async onApplicationShutdown(): Promise<void> {
    await this.connections.broker.close();
    await this.connections.listener.close();
    await this.pool.end();
  }
}

@Module({})
export class GatewayModule {
  static register(config: GatewayConfig, connections: GatewayConnections, host: AppHost): DynamicModule {
    const watch = new LogWatch();
    // Any append wakes whoever waits: they look at the truth again and sleep on.
    connections.listener.subscribe(() => watch.changed());
    return {
      module: GatewayModule,
      controllers: [
        StreamsController,
        ExperimentsController,
        AdaptersController,
        SamplesController,
        EventsController,
        TenantsController,
        OperationsController,
      ],
      providers: [
        {
          provide: POOL,
          useFactory: () => createPool(config.databaseUrl, { applicationName: 'hotbed-gateway', max: 4 }),
        },
        { provide: BLOB_STORE, useFactory: () => new FileBlobStore({ root: config.blobFolder }) },
        {
          provide: EVENT_STORE,
          useFactory: (pool: Pool, blobs: BlobStore) => new PgEventStore(pool, blobs),
          inject: [POOL, BLOB_STORE],
        },
        { provide: COMMANDS_PORT, useFactory: () => new RpcCommands(new RpcClient(connections.broker)) },
        { provide: HEALTH, useValue: host.health },
        { provide: METRICS, useValue: host.metrics },
        { provide: LOG_WATCH, useValue: watch },
        { provide: APP_GUARD, useClass: ApiKeyGuard },
        {
          provide: Foundations,
          useFactory: (pool: Pool) => new Foundations(pool, connections, host.health),
          inject: [POOL],
        },
        EventFeed,
        PeftFileHandler,
        SampleHandler,
      ],
    };
  }
}
