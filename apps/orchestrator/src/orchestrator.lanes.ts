import type { EventStore } from '#hotbed/contracts';
import type { LaneConsumerDefinition } from '#hotbed/messaging';
import { operationsLane, rolloutsLane, triggersLane } from './experiment/experiment.lanes';
import type { ExperimentProcess } from './experiment/experiment-process';

/** Of one consumer. Most of them are lingering, not working. */
const LANES_AT_ONCE = 32;

/**
 * Every lane of the orchestrator. One event type each: the broker then filters, and nothing else has to be
 * acknowledged. Two lanes may see one experiment at once: its row's lock orders them.
 */
export function orchestratorLanes(process: ExperimentProcess, store: EventStore): LaneConsumerDefinition[] {
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
