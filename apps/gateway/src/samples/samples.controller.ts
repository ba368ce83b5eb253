import { Body, Controller, HttpCode, Param, Post } from '@nestjs/common';
import { type Caller, FromCaller } from '../auth/caller';
import { ApiCommand } from '../openapi/api-command';
import { SampleHandler } from './sample.handler';

@Controller('v1')
export class SamplesController {
  constructor(private readonly samples: SampleHandler) {}

  @Post('adapters/:ref/sample')
  @HttpCode(200)
  @ApiCommand('orchestrator', 'request-samples', 'Sample from <adapter>@<alias or version>')
  fromAdapter(@FromCaller() caller: Caller, @Param('ref') ref: string, @Body() body: unknown) {
    return this.samples.sample(caller, ref, body);
  }

  @Post('base/sample')
  @HttpCode(200)
  @ApiCommand('orchestrator', 'request-samples', 'Sample from the plain base')
  fromBase(@FromCaller() caller: Caller, @Body() body: unknown) {
    return this.samples.sample(caller, null, body);
  }
}
