import { Body, Controller, Get, Inject, Param, Post, Query } from '@nestjs/common';
import { type Caller, FromCaller } from '../auth/caller';
import { COMMANDS_PORT, type Commands, unchecked } from '../http/commands';
import { IdempotentBody } from '../http/idempotent-body';
import { pageOf, type PageQuery } from '../http/page';
import { ApiCommand } from '../openapi/api-command';

const IN_PATH = { params: { stream: 'dataStream' } };

@Controller('v1/streams')
export class StreamsController {
  constructor(@Inject(COMMANDS_PORT) private readonly commands: Commands) {}

  @Post()
  @ApiCommand('ingest', 'create-data-stream', 'Create a data stream')
  create(@FromCaller() caller: Caller, @IdempotentBody() body: unknown) {
    return this.commands.request(caller, 'ingest', 'create-data-stream', unchecked(body));
  }

  @Get()
  @ApiCommand('ingest', 'list-data-streams', 'List data streams', { query: ['page'] })
  list(@FromCaller() caller: Caller, @Query() query: PageQuery) {
    return this.commands.request(caller, 'ingest', 'list-data-streams', { page: pageOf(query) });
  }

  @Get(':stream')
  @ApiCommand('ingest', 'get-data-stream', 'One data stream, by name or id', IN_PATH)
  get(@FromCaller() caller: Caller, @Param('stream') dataStream: string) {
    return this.commands.request(caller, 'ingest', 'get-data-stream', { dataStream });
  }

  @Post(':stream/records')
  @ApiCommand('ingest', 'append-records', 'Append records: all of one call, or none', IN_PATH)
  append(@FromCaller() caller: Caller, @Param('stream') dataStream: string, @Body() body: { records?: unknown }) {
    return this.commands.request(caller, 'ingest', 'append-records', unchecked({ ...body, dataStream }));
  }

  @Get(':stream/records')
  @ApiCommand('ingest', 'list-records', 'Records of a data stream, oldest first', { ...IN_PATH, query: ['page'] })
  records(@FromCaller() caller: Caller, @Param('stream') dataStream: string, @Query() query: PageQuery) {
    return this.commands.request(caller, 'ingest', 'list-records', { dataStream, page: pageOf(query) });
  }
}
