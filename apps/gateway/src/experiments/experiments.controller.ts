import { Controller, Get, HttpCode, Inject, Param, Post, Query } from '@nestjs/common';
import { type Caller, FromCaller } from '../auth/caller';
import { COMMANDS_PORT, type Commands, unchecked } from '../http/commands';
import { IdempotentBody } from '../http/idempotent-body';
import { pageOf, type PageQuery } from '../http/page';
import { ApiCommand } from '../openapi/api-command';

const IN_PATH = { params: { experiment: 'experiment' } };

@Controller('v1/experiments')
export class ExperimentsController {
  constructor(@Inject(COMMANDS_PORT) private readonly commands: Commands) {}

  @Post()
  @ApiCommand('orchestrator', 'create-experiment', 'Create an experiment and its adapter')
  create(@FromCaller() caller: Caller, @IdempotentBody() body: unknown) {
    return this.commands.request(caller, 'orchestrator', 'create-experiment', unchecked(body));
  }

  @Get()
  @ApiCommand('orchestrator', 'list-experiments', 'List experiments', { query: ['page'] })
  list(@FromCaller() caller: Caller, @Query() query: PageQuery) {
    return this.commands.request(caller, 'orchestrator', 'list-experiments', { page: pageOf(query) });
  }

  @Get(':experiment')
  @ApiCommand(
    'orchestrator',
    'get-experiment',
    'One experiment: state, curves, example rollouts, why it stalls',
    IN_PATH,
  )
  get(@FromCaller() caller: Caller, @Param('experiment') experiment: string) {
    return this.commands.request(caller, 'orchestrator', 'get-experiment', { experiment });
  }

  @Post(':experiment/trigger')
  @HttpCode(202)
  @ApiCommand('ingest', 'trigger-training', 'Start a training run over the records not used yet', IN_PATH)
  trigger(@FromCaller() caller: Caller, @Param('experiment') experiment: string) {
    return this.commands.request(caller, 'ingest', 'trigger-training', { experiment });
  }

  @Post(':experiment/pause')
  @HttpCode(200)
  @ApiCommand('orchestrator', 'pause-experiment', 'Hold after the current step', IN_PATH)
  pause(@FromCaller() caller: Caller, @Param('experiment') experiment: string) {
    return this.commands.request(caller, 'orchestrator', 'pause-experiment', { experiment });
  }

  @Post(':experiment/resume')
  @HttpCode(200)
  @ApiCommand('orchestrator', 'resume-experiment', 'Go on', IN_PATH)
  resume(@FromCaller() caller: Caller, @Param('experiment') experiment: string) {
    return this.commands.request(caller, 'orchestrator', 'resume-experiment', { experiment });
  }

  @Post(':experiment/cancel')
  @HttpCode(200)
  @ApiCommand('orchestrator', 'cancel-experiment', 'End for good; versions stay', IN_PATH)
  cancel(@FromCaller() caller: Caller, @Param('experiment') experiment: string) {
    return this.commands.request(caller, 'orchestrator', 'cancel-experiment', { experiment });
  }
}
