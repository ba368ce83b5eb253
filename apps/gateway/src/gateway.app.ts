import type { ServerResponse } from 'node:http';
import { NestFactory } from '@nestjs/core';
import { FastifyAdapter, type NestFastifyApplication } from '@nestjs/platform-fastify';
import { InvalidInput, Unavailable, toWireError } from '#hotbed/contracts';
import { LogListener } from '#hotbed/event-store';
import { Broker } from '#hotbed/messaging';
import { closeOnFailure, nestLogger, type AppHost, type CreateApp, type HostedApp, type Keep } from '#hotbed/runtime';
import { EventFeed } from './events/event-feed';
import { loadGatewayConfig, type GatewayConfig } from './gateway.config';
import { GatewayModule } from './gateway.module';
import { DomainErrorFilter, HTTP_STATUS } from './http/domain-error.filter';
import { describeApi } from './openapi/describe-api';

/** Bytes of one request body. */
const BODY_LIMIT_BYTES = 8 * 1024 * 1024;
/** A client has this long to send its request. */
const REQUEST_TIMEOUT_MS = 30_000;
const KEEP_ALIVE_MS = 10_000;

/** A hosted app that also says where it listens: port 0 asks for any free one. */
export interface GatewayApp extends HostedApp {
  /** Known once started. */
  readonly url: string;
}

export const createGatewayApp: CreateApp = (env, host): GatewayApp => new HttpGateway(loadGatewayConfig(env), host);

class HttpGateway implements GatewayApp {
  readonly name = 'gateway';
  url = '';
  private app: NestFastifyApplication | null = null;

  constructor(
    private readonly config: GatewayConfig,
    private readonly host: AppHost,
  ) {}

  async start(): Promise<void> {
    this.app = await closeOnFailure(async (keep) => {
      const app = keep(await this.create(keep));
      app.useGlobalFilters(new DomainErrorFilter());
      describeApi(app);
      await this.listen(app);
      return app;
    });
  }

  async stop(): Promise<void> {
    // Open event feeds would keep the server from closing.
    this.app?.get(EventFeed).close();
    await this.app?.close();
  }

  private async create(keep: Keep): Promise<NestFastifyApplication> {
    const { config, host } = this;
    const listener = keep(await LogListener.start(config.databaseUrl));
    const broker = keep(await Broker.connect({ ...config.nats, name: 'gateway' }));
    const adapter = new FastifyAdapter({
      bodyLimit: BODY_LIMIT_BYTES,
      requestTimeout: REQUEST_TIMEOUT_MS,
      keepAliveTimeout: KEEP_ALIVE_MS,
      forceCloseConnections: true,
      // A path that Fastify cannot read never reaches Nest's filter.
      frameworkErrors: (error: Error, _request: unknown, reply: { raw: ServerResponse }) => {
        const refusal = new InvalidInput([{ path: 'path', message: error.message }]);
        reply.raw
          .writeHead(HTTP_STATUS[refusal.kind], { 'content-type': 'application/json; charset=utf-8' })
          .end(JSON.stringify({ error: toWireError(refusal) }));
      },
    });
    return NestFactory.create<NestFastifyApplication>(
      GatewayModule.register(config, { listener, broker }, host),
      adapter,
      { logger: nestLogger(host.logger.child({ app: this.name })), abortOnError: false },
    );
  }

  private async listen(app: NestFastifyApplication): Promise<void> {
    const { host, port } = this.config.http;
    try {
      await app.listen(port, host);
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code !== 'EADDRINUSE') throw error;
      throw new Unavailable(
        'port_in_use',
        `port ${port} on ${host} is taken by another program; stop it or set HOTBED_HTTP_PORT`,
        { cause: error },
      );
    }
    const address = app.getHttpServer().address() as { port: number };
    this.url = `http://${host}:${address.port}`;
  }
}
