import { Body, Controller, Get, HttpCode, Inject, Param, Post, Query, Res } from '@nestjs/common';
import { ApiBearerAuth, ApiOkResponse, ApiOperation, ApiParam, ApiProduces } from '@nestjs/swagger';
import type { FastifyReply } from 'fastify';
import { type Caller, FromCaller } from '../auth/caller';
import { COMMANDS_PORT, type Commands, unchecked } from '../http/commands';
import { pageOf, type PageQuery } from '../http/page';
import { ApiCommand, ApiRefusal } from '../openapi/api-command';
import { PEFT_FILES, PeftFileHandler } from './peft-file.handler';

@Controller('v1')
export class AdaptersController {
  constructor(
    @Inject(COMMANDS_PORT) private readonly commands: Commands,
    private readonly peftFiles: PeftFileHandler,
  ) {}

  @Get('adapters')
  @ApiCommand('registry', 'list-adapters', 'List adapters', { query: ['page'] })
  list(@FromCaller() caller: Caller, @Query() query: PageQuery) {
    return this.commands.request(caller, 'registry', 'list-adapters', { page: pageOf(query) });
  }

  @Get('adapters/:adapter')
  @ApiCommand('registry', 'get-adapter', 'One adapter with its aliases', { params: { adapter: 'adapter' } })
  get(@FromCaller() caller: Caller, @Param('adapter') adapter: string) {
    return this.commands.request(caller, 'registry', 'get-adapter', { adapter });
  }

  @Get('adapters/:adapter/versions')
  @ApiCommand('registry', 'list-versions', 'Versions, oldest first', {
    params: { adapter: 'adapter' },
    query: ['page'],
  })
  versions(@FromCaller() caller: Caller, @Param('adapter') adapter: string, @Query() query: PageQuery) {
    return this.commands.request(caller, 'registry', 'list-versions', { adapter, page: pageOf(query) });
  }

  @Get('adapters/:adapter/resolve')
  @ApiCommand('registry', 'resolve', 'The version behind an alias or number, now or as of a time', {
    params: { adapter: 'adapter' },
    query: ['ref', 'asOfMs'],
  })
  resolve(
    @FromCaller() caller: Caller,
    @Param('adapter') adapter: string,
    @Query() query: { ref?: string; asOfMs?: string },
  ) {
    return this.commands.request(caller, 'registry', 'resolve', {
      adapter,
      ref: query.ref ?? null,
      asOfMs: query.asOfMs === undefined ? null : Number(query.asOfMs),
    });
  }

  @Get('adapters/:adapter/versions/:version/lineage')
  @ApiCommand('registry', 'lineage-of-version', 'Records, rollouts and rewards that influenced a version', {
    params: { adapter: 'adapter', version: 'version' },
    query: ['page'],
  })
  lineage(
    @FromCaller() caller: Caller,
    @Param('adapter') adapter: string,
    @Param('version') version: string,
    @Query() query: PageQuery,
  ) {
    return this.commands.request(caller, 'registry', 'lineage-of-version', {
      adapter,
      version: Number(version),
      page: pageOf(query, 1000),
    });
  }

  @Get('records/:record/versions')
  @ApiCommand('registry', 'versions-of-record', 'Versions that a record touched', { params: { record: 'recordId' } })
  versionsOfRecord(@FromCaller() caller: Caller, @Param('record') recordId: string) {
    return this.commands.request(caller, 'registry', 'versions-of-record', { recordId });
  }

  @Get('adapters/:adapter/aliases/:alias/history')
  @ApiCommand('registry', 'alias-history', 'Every move of an alias', { params: { adapter: 'adapter', alias: 'alias' } })
  aliasHistory(@FromCaller() caller: Caller, @Param('adapter') adapter: string, @Param('alias') alias: string) {
    return this.commands.request(caller, 'registry', 'alias-history', { adapter, alias });
  }

  @Post('adapters/:adapter/aliases/:alias')
  @HttpCode(200)
  @ApiCommand('orchestrator', 'move-alias', 'Move an alias to a version', {
    params: { adapter: 'adapter', alias: 'alias' },
  })
  moveAlias(
    @FromCaller() caller: Caller,
    @Param('adapter') adapter: string,
    @Param('alias') alias: string,
    @Body() body: Record<string, unknown>,
  ) {
    return this.commands.request(caller, 'orchestrator', 'move-alias', unchecked({ ...body, adapter, alias }));
  }

  @Get('audit/head')
  @ApiCommand('registry', 'head', 'The end of the log: keep it, and hold the platform to it')
  head(@FromCaller() caller: Caller) {
    return this.commands.request(caller, 'registry', 'head', {});
  }

  /** `adapter_model.safetensors` or `adapter_config.json`: the two together load in Hugging Face tools. */
  @Get('adapters/:ref/peft/:file')
  @ApiBearerAuth()
  @ApiOperation({ summary: 'Download a PEFT file of <adapter>@<alias or version>', operationId: 'peft-file' })
  @ApiParam({ name: 'ref', description: '<adapter>@<alias or version>, or <adapter> for its latest version' })
  @ApiParam({ name: 'file', enum: PEFT_FILES })
  @ApiProduces('application/octet-stream', 'application/json')
  @ApiOkResponse({ description: 'The file', schema: { type: 'string', format: 'binary' } })
  @ApiRefusal()
  async peftFile(
    @FromCaller() caller: Caller,
    @Param('ref') adapterRef: string,
    @Param('file') file: string,
    @Res() reply: FastifyReply,
  ): Promise<void> {
    const { digest, size, mediaType, stream } = await this.peftFiles.open(caller, adapterRef, file);
    await reply
      .header('content-type', mediaType)
      .header('content-length', size)
      .header('etag', `"${digest}"`)
      .header('x-content-sha256', digest)
      .send(stream);
  }
}
