import { RpcServer, type LaneConsumerDefinition } from '#hotbed/messaging';
import { COMMANDS, type EventStore } from '#hotbed/contracts';
import type { MoveAliasHandler } from './alias/move-alias.handler';
import type { ControlExperimentHandler } from './experiment/control-experiment.handler';
import type { CreateExperimentHandler } from './experiment/create-experiment.handler';
import { operationsLane, rolloutsLane, triggersLane } from './experiment/experiment.lanes';
import type { ExperimentProcess } from './experiment/experiment-process';
import type { GetExperimentHandler } from './experiment/get-experiment.handler';
import type { ListExperimentsHandler } from './experiment/list-experiments.handler';
import type { ReadSamplesHandler } from './samples/read-samples.handler';
import type { RequestSamplesHandler } from './samples/request-samples.handler';

/** Of one consumer. Most of them are lingering, not working. */
const LANES_AT_ONCE = 32;

/**
 * Every lane of the orchestrator. One event type each: the broker then filters, and nothing else has to be
 * acknowledged. Two lanes may see one experiment at once: its row's lock orders them.
 */
export function laneDefinitions(process: ExperimentProcess, store: EventStore): LaneConsumerDefinition[] {
  const rollouts = rolloutsLane(process);
  const operations = operationsLane(process, store);
  return [
    lane('triggers', 'data-stream', 'TrainingTriggered', triggersLane(process)),
    lane('rewards', 'rollouts', 'RewardsAssigned', rollouts),
    lane('failed-rewards', 'rollouts', 'RewardsFailed', rollouts),
    lane('failed-rollouts', 'rollouts', 'RolloutsFailed', rollouts),
    lane('versions', 'adapter', 'AdapterCheckpointed', operations),
    lane('failed-operations', 'adapter', 'OperationFailed', operations),
  ];
}

function lane(
  name: string,
  category: LaneConsumerDefinition['category'],
  type: LaneConsumerDefinition['types'][number],
  handle: LaneConsumerDefinition['handle'],
): LaneConsumerDefinition {
  return { name: `orchestrator-${name}`, category, types: [type], handle, concurrency: LANES_AT_ONCE };
}

export interface CommandHandlers {
  create: CreateExperimentHandler;
  control: ControlExperimentHandler;
  get: GetExperimentHandler;
  list: ListExperimentsHandler;
  requestSamples: RequestSamplesHandler;
  readSamples: ReadSamplesHandler;
  moveAlias: MoveAliasHandler;
}

/** Binds every command of the contract to its handler. */
export function bindCommands(server: RpcServer, handlers: CommandHandlers): RpcServer {
  const commands = COMMANDS.orchestrator;
  return server
    .handle('create-experiment', commands['create-experiment'].request, (body, { tenantId }) =>
      handlers.create.create(tenantId, body),
    )
    .handle('pause-experiment', commands['pause-experiment'].request, (body, { tenantId }) =>
      handlers.control.pause(tenantId, body.experiment),
    )
    .handle('resume-experiment', commands['resume-experiment'].request, (body, { tenantId }) =>
      handlers.control.resume(tenantId, body.experiment),
    )
    .handle('cancel-experiment', commands['cancel-experiment'].request, (body, { tenantId }) =>
      handlers.control.cancel(tenantId, body.experiment),
    )
    .handle('get-experiment', commands['get-experiment'].request, (body, { tenantId }) =>
      handlers.get.get(tenantId, body.experiment),
    )
    .handle('list-experiments', commands['list-experiments'].request, (body, { tenantId }) =>
      handlers.list.list(tenantId, body),
    )
    .handle('request-samples', commands['request-samples'].request, (body, { tenantId }) =>
      handlers.requestSamples.request(tenantId, body),
    )
    .handle('read-samples', commands['read-samples'].request, (body, { tenantId }) =>
      handlers.readSamples.read(tenantId, body),
    )
    .handle('move-alias', commands['move-alias'].request, (body, { tenantId }) =>
      handlers.moveAlias.move(tenantId, body),
    );
}
