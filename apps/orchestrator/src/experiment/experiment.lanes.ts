import type { AnyStoredEvent, EventStore, LaneHandler } from '#hotbed/contracts';
import { latestAliasMove } from '../alias/latest-alias';
import type { ExperimentFact, ExperimentProcess } from './experiment-process';

/** Lane over `data-stream:*`: new windows for experiments. */
export function triggersLane(process: ExperimentProcess): LaneHandler {
  return async (events, uow) => {
    const facts = events.flatMap((event): ExperimentFact[] =>
      event.type === 'TrainingTriggered' ? [{ experimentId: event.payload.experimentId, event }] : [],
    );
    if (facts.length === 0) return;
    const items = await process.takeFacts(uow, facts);
    if (items.length > 0) await uow.append(items);
  };
}

/** Lane over `rollouts:*`: rewards of the current step, or why there are none. */
export function rolloutsLane(process: ExperimentProcess): LaneHandler {
  return async (events, uow) => {
    const facts = events.flatMap(rolloutFact);
    if (facts.length === 0) return;
    const items = await process.takeFacts(uow, facts);
    if (items.length > 0) await uow.append(items);
  };
}

/** Lane over `adapter:*`: failed operations end experiments; versions end runs and move `latest`. */
export function operationsLane(
  process: ExperimentProcess,
  store: EventStore,
  now: () => number = Date.now,
): LaneHandler {
  return async (events, uow) => {
    const results = events.filter(isOperationResult);
    const [first] = results;
    if (first === undefined) return;
    const items = [];
    const row = await process.lockByAdapter(uow, first.payload.adapterId);
    if (row !== null) {
      const { item } = await process.advance(uow, row, {
        facts: results,
        causationId: results.at(-1)?.eventId ?? null,
      });
      if (item !== null) items.push(item);
    }
    for (const event of results) {
      if (event.type !== 'AdapterCheckpointed') continue;
      const move = await latestAliasMove(store, event, now());
      if (move !== null) items.push(move);
    }
    if (items.length > 0) await uow.append(items);
  };
}

function rolloutFact(event: AnyStoredEvent): ExperimentFact[] {
  switch (event.type) {
    case 'RolloutsFailed':
    case 'RewardsAssigned':
    case 'RewardsFailed':
      return event.payload.experimentId === null ? [] : [{ experimentId: event.payload.experimentId, event }];
    default:
      return [];
  }
}

type OperationResult = Extract<AnyStoredEvent, { type: 'OperationFailed' | 'AdapterCheckpointed' }>;

function isOperationResult(event: AnyStoredEvent): event is OperationResult {
  return event.type === 'OperationFailed' || event.type === 'AdapterCheckpointed';
}
