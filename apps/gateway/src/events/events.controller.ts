import { Controller, Get, Headers, Query, Req, Res } from '@nestjs/common';
import { ApiBearerAuth, ApiHeader, ApiOkResponse, ApiOperation, ApiProduces, ApiQuery } from '@nestjs/swagger';
import type { FastifyReply, FastifyRequest } from 'fastify';
import { type Caller, FromCaller } from '../auth/caller';
import { ApiRefusal } from '../openapi/api-command';
import { EventFeed } from './event-feed';

@Controller('v1/events')
export class EventsController {
  constructor(private readonly feed: EventFeed) {}

  /** Server-sent events of the caller's tenant, in log order; `Last-Event-ID` (or ?after=) resumes after a position. */
  @Get()
  @ApiBearerAuth()
  @ApiOperation({ summary: 'Live events of the tenant as server-sent events', operationId: 'events' })
  @ApiHeader({ name: 'Last-Event-ID', required: false, description: 'log position to go on after; before `after`' })
  @ApiQuery({
    name: 'after',
    required: false,
    schema: { type: 'string' },
    description: 'log position to begin after; left out: now',
  })
  @ApiQuery({
    name: 'types',
    required: false,
    schema: { type: 'string' },
    description: 'event types, separated by commas; left out: all',
  })
  @ApiProduces('text/event-stream')
  @ApiOkResponse({
    description: 'id = log position, event = type, data = the event as JSON',
    schema: { type: 'string' },
  })
  @ApiRefusal()
  async stream(
    @FromCaller() caller: Caller,
    @Headers('last-event-id') lastEventId: string | undefined,
    @Query() query: { after?: string; types?: string | string[] },
    @Req() request: FastifyRequest,
    @Res() reply: FastifyReply,
  ): Promise<void> {
    const options = await this.feed.enter(caller.tenantId, lastEventId ?? query.after, query.types);
    reply.hijack();
    await this.feed.write(caller.tenantId, options, request.raw, reply.raw);
  }
}
