import { join } from 'node:path';
import type { INestApplicationContext } from '@nestjs/common';
import { NestFactory } from '@nestjs/core';
import { LogListener } from '#hotbed/event-store';
import { nestLogger, type AppHost, type CreateApp, type HostedApp } from '#hotbed/runtime';
import { BrokerDoorbell } from './doorbell/broker-doorbell';
import { loadEvictingBaseModel } from './engine/base-model';
import { registerEngineMetrics, registerEvictionMetrics } from './engine/engine-metrics';
import { loadGpuWorkerConfig, type GpuWorkerConfig } from './gpu-worker.config';
import { GpuWorkerModule } from './gpu-worker.module';
import { Worker } from './worker/worker';
import { registerWorkerMetrics } from './worker/worker-metrics';

export const createGpuWorkerApp: CreateApp = (env, host) => new GpuWorkerApp(loadGpuWorkerConfig(env), host);

/** Loads the base first: what is wrong with a model folder is said before anything else begins. */
class GpuWorkerApp implements HostedApp {
  readonly name = 'gpu-worker';
  private context: INestApplicationContext | null = null;
  private doorbell: BrokerDoorbell | null = null;

  constructor(
    private readonly config: GpuWorkerConfig,
    private readonly host: AppHost,
  ) {}

  async start(): Promise<void> {
    const { config, host } = this;
    const removeLoading = host.health.readiness('base', () => Promise.reject(new Error('the base is being loaded')));
    const engine = await loadEvictingBaseModel(
      config.engine,
      config.worker.adapterMemoryBytes,
      join(config.blobFolder, 'tmp', `idle-${config.workerName}`),
    );
    for (const [tenant, weight] of config.tenantWeights) engine.setTenantWeight(tenant, weight);
    host.logger.info(engine.info(), 'base loaded');
    const listener = await LogListener.start(config.databaseUrl);
    this.context = await NestFactory.createApplicationContext(
      GpuWorkerModule.register(config, engine, listener, host),
      {
        logger: nestLogger(host.logger),
        abortOnError: false,
      },
    );
    const worker = this.context.get(Worker);
    registerEngineMetrics(engine, host.metrics);
    registerEvictionMetrics(engine, host.metrics);
    registerWorkerMetrics(worker, host.metrics);
    await worker.start();
    listener.subscribe(() => worker.ring());
    this.doorbell = new BrokerDoorbell({
      nats: config.nats,
      listener: config.workerName,
      ring: () => worker.ring(),
      logger: host.logger,
    });
    host.health.readiness('worker', () => {
      const problems = worker.problems();
      if (problems.length > 0) throw new Error(problems.join('; '));
    });
    removeLoading();
  }

  async stop(): Promise<void> {
    await Promise.all([this.doorbell?.stop(), this.context?.get(Worker).stop('shutdown')]);
    await this.context?.close();
  }
}
