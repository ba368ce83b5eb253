import { Controller, Get, Inject, Res } from '@nestjs/common';
import { ApiOperation } from '@nestjs/swagger';
import type { FastifyReply } from 'fastify';
import type { Health, HealthReport } from '#hotbed/runtime';
import type { Registry } from 'prom-client';
import { Public } from '../auth/api-key.guard';

/** Injection tokens. */
export const HEALTH = Symbol('Health');
export const METRICS = Symbol('Metrics');

/** For operators: no key, no tenant's data. */
@Public()
@Controller()
export class OperationsController {
  constructor(
    @Inject(HEALTH) private readonly health: Health,
    @Inject(METRICS) private readonly metrics: Registry,
  ) {}

  @Get('healthz')
  @ApiOperation({ summary: 'Alive: only a restart would heal a failure', operationId: 'healthz' })
  async live(@Res() reply: FastifyReply): Promise<void> {
    await send(reply, await this.health.live());
  }

  @Get('readyz')
  @ApiOperation({ summary: 'Ready: every part works', operationId: 'readyz' })
  async ready(@Res() reply: FastifyReply): Promise<void> {
    await send(reply, await this.health.ready());
  }

  @Get('metrics')
  @ApiOperation({ summary: 'Metrics in Prometheus format', operationId: 'metrics' })
  async print(@Res() reply: FastifyReply): Promise<void> {
    await reply.header('content-type', this.metrics.contentType).send(await this.metrics.metrics());
  }
}

async function send(reply: FastifyReply, report: HealthReport): Promise<void> {
  await reply.status(report.ok ? 200 : 503).send(report);
}
