import {
  Module,
  type BeforeApplicationShutdown,
  type DynamicModule,
  type OnApplicationBootstrap,
  type OnApplicationShutdown,
  type OnModuleDestroy,
} from '@nestjs/common';
import { COMMANDS, type BlobStore, type EventStore } from '#hotbed/contracts';
import {
  createPool,
  FileBlobStore,
  PgEventStore,
  PgTransactions,
  ProjectionRunner,
  Queries,
  type LogListener,
} from '#hotbed/event-store';
import { RpcServer, type Broker } from '#hotbed/messaging';
import type { AppHost, Health } from '#hotbed/runtime';
import { LineageQueries } from './lineage/lineage.queries';
import { LineageReadModel } from './lineage/lineage.read-model';
import { AsOfStamp } from './projection/as-of';
import { registryProjection } from './projection/registry.projection';
import { handleRegistryCommands } from './registry.commands';
import type { RegistryConfig } from './registry.config';
import { TenantsHandler } from './tenants/tenants.handler';
import { TenantsReadModel } from './tenants/tenants.read-model';
import { VersionsQueries } from './versions/versions.queries';
import { VersionsReadModel } from './versions/versions.read-model';

type Pool = ReturnType<typeof createPool>;

const POOL = Symbol('pool');
const BLOBS = Symbol('blobs');
const EVENTS = Symbol('events');

export interface RegistryConnections {
  listener: LogListener;
  broker: Broker;
}

/** Starts and stops the registry's parts in order: stop answering, stop folding, drain the broker, close the database. */
class RegistryLifecycle
  implements OnApplicationBootstrap, OnModuleDestroy, BeforeApplicationShutdown, OnApplicationShutdown
{
  constructor(
    private readonly pool: Pool,
    private readonly rpc: RpcServer,
    private readonly projection: ProjectionRunner,
    private readonly connections: RegistryConnections,
    health: Health,
  ) {
    health.readiness('registry broker', () => connections.broker.assertConnected());
    health.readiness('registry projection', () => {
      if (projection.failure instanceof Error) throw projection.failure;
    });
  }

  async onApplicationBootstrap(): Promise<void> {
    try {
      await this.projection.catchUp();
      this.projection.start();
      this.rpc.start(Object.keys(COMMANDS.registry));
      // Started means that whoever asks from now on is answered.
      await this.connections.broker.flush();
    } catch (error) {
      // Nest ends nothing of an app that did not start.
      await this.onModuleDestroy();
      await this.onApplicationShutdown();
      throw error;
    }
  }

  async onModuleDestroy(): Promise<void> {
    await Promise.all([this.rpc.stop(), this.projection.stop()]);
  }

  beforeApplicationShutdown(): Promise<void> {
    return this.connections.broker.close();
  }

  async onApplicationShutdown(): Promise<void> {
    await this.connections.listener.close();
    await this.pool.end();
  }
}

@Module({})
export class RegistryModule {
  static register(config: RegistryConfig, connections: RegistryConnections, host: AppHost): DynamicModule {
    const logger = host.logger.child({ app: 'registry' });
    return {
      module: RegistryModule,
      providers: [
        { provide: BLOBS, useFactory: () => new FileBlobStore({ root: config.blobFolder }) },
        { provide: POOL, useFactory: () => createPool(config.databaseUrl, { applicationName: 'hotbed-registry' }) },
        {
          provide: EVENTS,
          useFactory: (pool: Pool, blobs: BlobStore) => new PgEventStore(pool, blobs),
          inject: [POOL, BLOBS],
        },
        {
          provide: ProjectionRunner,
          useFactory: (store: EventStore, pool: Pool, blobs: BlobStore) =>
            new ProjectionRunner({
              store,
              transactions: new PgTransactions(pool, blobs),
              listener: connections.listener,
              projection: registryProjection,
              onError: (error) => logger.warn({ err: error }, 'the registry projection failed; trying again'),
            }),
          inject: [EVENTS, POOL, BLOBS],
        },
        {
          provide: AsOfStamp,
          useFactory: (events: EventStore, projection: ProjectionRunner) => new AsOfStamp(events, projection),
          inject: [EVENTS, ProjectionRunner],
        },
        {
          provide: VersionsReadModel,
          useFactory: (pool: Pool) => new VersionsReadModel(new Queries(pool)),
          inject: [POOL],
        },
        {
          provide: LineageReadModel,
          useFactory: (pool: Pool) => new LineageReadModel(new Queries(pool)),
          inject: [POOL],
        },
        {
          provide: TenantsReadModel,
          useFactory: (pool: Pool) => new TenantsReadModel(new Queries(pool)),
          inject: [POOL],
        },
        {
          provide: VersionsQueries,
          useFactory: (versions: VersionsReadModel, asOf: AsOfStamp) => new VersionsQueries(versions, asOf),
          inject: [VersionsReadModel, AsOfStamp],
        },
        {
          provide: LineageQueries,
          useFactory: (lineage: LineageReadModel, versions: VersionsReadModel, asOf: AsOfStamp) =>
            new LineageQueries(lineage, versions, asOf),
          inject: [LineageReadModel, VersionsReadModel, AsOfStamp],
        },
        {
          provide: TenantsHandler,
          useFactory: (events: EventStore, tenants: TenantsReadModel, asOf: AsOfStamp) =>
            new TenantsHandler(events, tenants, asOf),
          inject: [EVENTS, TenantsReadModel, AsOfStamp],
        },
        {
          provide: RpcServer,
          useFactory: (versions: VersionsQueries, lineage: LineageQueries, tenants: TenantsHandler, asOf: AsOfStamp) =>
            handleRegistryCommands(
              new RpcServer(connections.broker, 'registry', {
                onBug: (command, error) => logger.error({ err: error }, command),
              }),
              { versions, lineage, tenants, asOf },
            ),
          inject: [VersionsQueries, LineageQueries, TenantsHandler, AsOfStamp],
        },
        {
          provide: RegistryLifecycle,
          useFactory: (pool: Pool, rpc: RpcServer, projection: ProjectionRunner) =>
            new RegistryLifecycle(pool, rpc, projection, connections, host.health),
          inject: [POOL, RpcServer, ProjectionRunner],
        },
      ],
    };
  }
}
