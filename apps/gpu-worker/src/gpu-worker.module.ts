import { Module, type DynamicModule, type OnApplicationShutdown } from '@nestjs/common';
import type { BlobStore, EventStore } from '#hotbed/contracts';
import type { Engine } from '#hotbed/engine';
import { createPool, FileBlobStore, Leases, LogListener, PgEventStore, WorkList } from '#hotbed/event-store';
import type { AppHost } from '#hotbed/runtime';
import { Failpoints } from './failpoint/failpoints';
import type { GpuWorkerConfig } from './gpu-worker.config';
import { Worker } from './worker/worker';

type Pool = ReturnType<typeof createPool>;

export const POOL = Symbol('pool');
export const ENGINE = Symbol('engine');
export const EVENTS = Symbol('events');
export const BLOBS = Symbol('blobs');

/** Closes what the worker stood on, after the worker itself was stopped. */
class Foundations implements OnApplicationShutdown {
  constructor(
    private readonly pool: Pool,
    private readonly listener: LogListener,
    private readonly engine: Engine,
  ) {}

  async onApplicationShutdown(): Promise<void> {
    await this.listener.close();
    await this.engine.dispose();
    await this.pool.end();
  }
}

@Module({})
export class GpuWorkerModule {
  /** @param engine with its base loaded; @param listener connected: what can be wrong with either is said before Nest begins */
  static register(config: GpuWorkerConfig, engine: Engine, listener: LogListener, host: AppHost): DynamicModule {
    return {
      module: GpuWorkerModule,
      providers: [
        { provide: ENGINE, useValue: engine },
        { provide: BLOBS, useFactory: (): BlobStore => new FileBlobStore({ root: config.blobFolder }) },
        { provide: POOL, useFactory: () => poolOf(config, host) },
        {
          provide: EVENTS,
          useFactory: (pool: Pool, blobs: BlobStore) => new PgEventStore(pool, blobs),
          inject: [POOL, BLOBS],
        },
        {
          provide: WorkList,
          useFactory: (pool: Pool, blobs: BlobStore) => new WorkList(pool, blobs),
          inject: [POOL, BLOBS],
        },
        { provide: LogListener, useValue: listener },
        {
          provide: Worker,
          useFactory: (events: EventStore, blobs: BlobStore, workList: WorkList, pool: Pool) =>
            new Worker(
              { modelFolder: config.engine.modelFolder, ...config.worker },
              {
                engine,
                events,
                blobs,
                workList,
                failpoints: new Failpoints(config.failpoints),
                logger: host.logger,
                register: (options) => Leases.register({ ...options, databaseUrl: config.databaseUrl, pool }),
              },
            ),
          inject: [EVENTS, BLOBS, WorkList, POOL],
        },
        {
          provide: Foundations,
          useFactory: (pool: Pool) => new Foundations(pool, listener, engine),
          inject: [POOL],
        },
      ],
    };
  }
}

function poolOf(config: GpuWorkerConfig, host: AppHost): Pool {
  return createPool(config.databaseUrl, {
    applicationName: 'hotbed-gpu-worker',
    onError: (error) => host.logger.warn({ err: error }, 'an idle database connection broke'),
  });
}
