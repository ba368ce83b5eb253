import { Controller, Get, Headers, Query, Req, Res } from '@nestjs/common';
import { ApiOperation } from '@nestjs/swagger';
import type { FastifyReply, FastifyRequest } from 'fastify';
import { type Caller, FromCaller } from '../auth/caller';
import { EventFeed } from './event-feed';

@Controller('v1/events')
export class EventsController {
  constructor(private readonly feed: EventFeed) {}

  /** Server-sent events of the caller's tenant, in log order; `Last-Event-ID` (or ?after=) resumes after a position. */
  @Get()
  @ApiOperation({ summary: 'Live events of the tenant as server-sent events', operationId: 'events' })
  async stream(
    @FromCaller() caller: Caller,
    @Headers('last-event-id') lastEventId: string | undefined,
    @Query() query: { after?: string; types?: string },
    @Req() request: FastifyRequest,
    @Res() reply: FastifyReply,
  ): Promise<void> {
    const options = await this.feed.options(lastEventId ?? query.after, query.types);
    reply.hijack();
    await this.feed.write(caller.tenantId, options, request.raw, reply.raw);
  }
}
