import type { AnyStoredEvent, LaneHandler, UnitOfWork } from '#hotbed/contracts';
import { INGEST_ACTOR } from '../ingest.actor';
import { fireTriggers } from './fire-trigger';
import type { Trigger } from './trigger';
import { countWindows } from './trigger.decider';
import { triggers } from './trigger.read-model';

/** Lane over `experiment:*`: an experiment brings its trigger and takes it away. */
export function followExperiments(now: () => number = Date.now): LaneHandler {
  return async (events, uow) => {
    for (const event of events) {
      if (event.type === 'ExperimentCreated') await startFollowing(event, uow, now());
      if (endsExperiment(event)) await triggers.remove(uow, event.payload.experimentId);
    }
  };
}

/** Lane over `data-stream:*`: enough records start a training run. */
export function countRecords(now: () => number = Date.now): LaneHandler {
  return async (events, uow) => {
    const newest = events.findLast((event) => event.type === 'RecordReceived');
    if (newest === undefined) return;
    const dataStreamId = newest.streamId.slice('data-stream:'.length);
    await triggers.lockStream(uow, dataStreamId);
    await fireCounted(uow, await triggers.ofStream(uow, dataStreamId), newest.eventId, now());
  };
}

/** Records that came before the experiment count too: its first window begins at the stream's first record. */
async function startFollowing(
  event: Extract<AnyStoredEvent, { type: 'ExperimentCreated' }>,
  uow: UnitOfWork,
  nowMs: number,
): Promise<void> {
  const { experimentId, dataStreamId, trigger: policy } = event.payload;
  await triggers.lockStream(uow, dataStreamId);
  await triggers.add(uow, {
    experimentId,
    tenantId: event.tenantId,
    dataStreamId,
    policy,
    cursorVersion: 0n,
    lastTriggeredMs: nowMs,
  });
  const added = await triggers.ofExperiment(uow, event.tenantId, experimentId);
  if (added !== null) await fireCounted(uow, [added], event.eventId, nowMs);
}

async function fireCounted(uow: UnitOfWork, candidates: readonly Trigger[], causationId: string, nowMs: number) {
  const due = [];
  for (const trigger of candidates) {
    if (trigger.policy.kind !== 'count') continue;
    for (const window of countWindows(trigger, await triggers.recordsAfter(uow, trigger))) {
      due.push({ trigger, window, cause: 'count' as const, causationId, actor: INGEST_ACTOR });
    }
  }
  await fireTriggers(uow, due, nowMs);
}

const ENDINGS = ['ExperimentCompleted', 'ExperimentFailed', 'ExperimentCancelled'] as const;

function endsExperiment(event: AnyStoredEvent): event is Extract<AnyStoredEvent, { type: (typeof ENDINGS)[number] }> {
  return ENDINGS.some((type) => type === event.type);
}
