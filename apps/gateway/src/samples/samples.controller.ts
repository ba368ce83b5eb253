import { Body, Controller, HttpCode, Param, Post } from '@nestjs/common';
import { ApiParam } from '@nestjs/swagger';
import { type Caller, FromCaller } from '../auth/caller';
import { ApiCommand } from '../openapi/api-command';
import { SampleHandler, sampleAnswerSchema, sampleBodySchema } from './sample.handler';

/** The door resolves the adapter, asks for the samples and waits for them. */
const DOOR = { body: sampleBodySchema, reply: sampleAnswerSchema };

@Controller('v1')
export class SamplesController {
  constructor(private readonly samples: SampleHandler) {}

  @Post('adapters/:ref/sample')
  @HttpCode(200)
  @ApiParam({ name: 'ref', description: '<adapter>@<alias or version>, or <adapter> for its latest version' })
  @ApiCommand('orchestrator', 'request-samples', 'Sample from <adapter>@<alias or version>', {
    ...DOOR,
    operationId: 'sample-adapter',
  })
  fromAdapter(@FromCaller() caller: Caller, @Param('ref') adapterRef: string, @Body() body: unknown) {
    return this.samples.sample(caller, adapterRef, body);
  }

  @Post('base/sample')
  @HttpCode(200)
  @ApiCommand('orchestrator', 'request-samples', 'Sample from the plain base', { ...DOOR, operationId: 'sample-base' })
  fromBase(@FromCaller() caller: Caller, @Body() body: unknown) {
    return this.samples.sample(caller, null, body);
  }
}
