import { COMMANDS } from '#hotbed/contracts';
import type { RpcServer } from '#hotbed/messaging';
import type { MoveAliasHandler } from './alias/move-alias.handler';
import type { ControlExperimentHandler } from './experiment/control-experiment.handler';
import type { CreateExperimentHandler } from './experiment/create-experiment.handler';
import type { GetExperimentHandler } from './experiment/get-experiment.handler';
import type { ListExperimentsHandler } from './experiment/list-experiments.handler';
import { ORCHESTRATOR_ACTOR } from './orchestrator.actor';
import type { ReadSamplesHandler } from './samples/read-samples.handler';
import type { RequestSamplesHandler } from './samples/request-samples.handler';

interface Handlers {
  create: CreateExperimentHandler;
  control: ControlExperimentHandler;
  get: GetExperimentHandler;
  list: ListExperimentsHandler;
  requestSamples: RequestSamplesHandler;
  readSamples: ReadSamplesHandler;
  moveAlias: MoveAliasHandler;
}

const { orchestrator } = COMMANDS;

/** Every command of the orchestrator and who handles it. */
export function handleOrchestratorCommands(rpc: RpcServer, handlers: Handlers): RpcServer {
  const { create, control, get, list, requestSamples, readSamples, moveAlias } = handlers;
  return rpc
    .handle('create-experiment', orchestrator['create-experiment'].request, (request, { tenantId, actor }) =>
      create.create(tenantId, request, actor ?? ORCHESTRATOR_ACTOR),
    )
    .handle('pause-experiment', orchestrator['pause-experiment'].request, (request, { tenantId, actor }) =>
      control.pause(tenantId, request.experiment, actor ?? ORCHESTRATOR_ACTOR),
    )
    .handle('resume-experiment', orchestrator['resume-experiment'].request, (request, { tenantId, actor }) =>
      control.resume(tenantId, request.experiment, actor ?? ORCHESTRATOR_ACTOR),
    )
    .handle('cancel-experiment', orchestrator['cancel-experiment'].request, (request, { tenantId, actor }) =>
      control.cancel(tenantId, request.experiment, actor ?? ORCHESTRATOR_ACTOR),
    )
    .handle('get-experiment', orchestrator['get-experiment'].request, (request, { tenantId }) =>
      get.get(tenantId, request.experiment),
    )
    .handle('list-experiments', orchestrator['list-experiments'].request, (request, { tenantId }) =>
      list.list(tenantId, request),
    )
    .handle('request-samples', orchestrator['request-samples'].request, (request, { tenantId, actor }) =>
      requestSamples.request(tenantId, request, actor ?? ORCHESTRATOR_ACTOR),
    )
    .handle('read-samples', orchestrator['read-samples'].request, (request, { tenantId }) =>
      readSamples.read(tenantId, request),
    )
    .handle('move-alias', orchestrator['move-alias'].request, (request, { tenantId, actor }) =>
      moveAlias.move(tenantId, request, actor ?? ORCHESTRATOR_ACTOR),
    );
}
