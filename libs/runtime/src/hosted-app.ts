import type { INestApplicationContext } from '@nestjs/common';
import type { DynamicModule } from '@nestjs/common';
import { NestFactory } from '@nestjs/core';
import type { Registry } from 'prom-client';
import type { Health } from './health';
import { nestLogger, type Logger } from './logger';

/** What a process lends to every app that it hosts. */
export interface AppHost {
  logger: Logger;
  /** Metrics of the whole process; `/metrics` prints it. */
  metrics: Registry;
  health: Health;
}

/**
 * An app as a value: `hotbed up` hosts all control-plane apps in one process, `main.ts` hosts one alone.
 * `start` resolves when the app serves; `stop` resolves when everything it took is finished or given back. Both are
 * called once. An app reports its readiness to `host.health` and never touches `process`.
 */
export interface HostedApp {
  readonly name: string;
  start(): Promise<void>;
  stop(): Promise<void>;
}

/** How `main.ts` and `hotbed up` make an app: configuration from the environment, the rest from the host. */
export type CreateApp = (env: NodeJS.ProcessEnv, host: AppHost) => HostedApp | Promise<HostedApp>;

/**
 * A HostedApp around a Nest module without HTTP. Nest's hooks give the shutdown order: `onModuleDestroy` stops pulling
 * and finishes or gives back what is held, `beforeApplicationShutdown` drains the broker, `onApplicationShutdown` closes
 * the database.
 */
export function nestApp(name: string, module: DynamicModule, host: AppHost): HostedApp {
  let context: INestApplicationContext | undefined;
  return {
    name,
    async start() {
      context = await NestFactory.createApplicationContext(module, {
        logger: nestLogger(host.logger.child({ app: name })),
        abortOnError: false,
      });
    },
    async stop() {
      await context?.close();
    },
  };
}
