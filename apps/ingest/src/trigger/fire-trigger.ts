import { newId, streamId, type AppendItem, type PayloadOf, type UnitOfWork } from '#hotbed/contracts';
import type { Trigger, Window } from './trigger';
import { triggers } from './trigger.read-model';

type Cause = PayloadOf<'TrainingTriggered'>['cause'];
export type Fired = PayloadOf<'TrainingTriggered'>;

export interface DueTrigger {
  trigger: Trigger;
  window: Window;
  cause: Cause;
  causationId: string | null;
  actor: string;
}

/** Moves the cursors and appends TrainingTriggered for each window, in one transaction with whatever found them due. */
export async function fireTriggers(uow: UnitOfWork, due: readonly DueTrigger[], nowMs: number): Promise<Fired[]> {
  if (due.length === 0) return [];
  for (const { trigger, window } of due) await triggers.moveCursor(uow, trigger.experimentId, window.to, nowMs);
  const items = due.map(({ trigger, window, cause, causationId, actor }) => {
    const payload: Fired = {
      triggerId: newId(),
      experimentId: trigger.experimentId,
      dataStreamId: trigger.dataStreamId,
      from: window.from.toString(),
      to: window.to.toString(),
      records: window.records,
      cause,
    };
    return { item: appendItem(trigger, payload, { causationId, actor }, nowMs), payload };
  });
  await uow.append(items.map(({ item }) => item));
  return items.map(({ payload }) => payload);
}

function appendItem(
  trigger: Trigger,
  payload: Fired,
  { causationId, actor }: Pick<DueTrigger, 'causationId' | 'actor'>,
  nowMs: number,
): AppendItem {
  return {
    writes: [
      {
        streamId: streamId('data-stream', trigger.dataStreamId),
        expected: 'exists',
        events: [
          {
            eventId: newId(),
            type: 'TrainingTriggered',
            tenantId: trigger.tenantId,
            occurredAtMs: nowMs,
            actor,
            correlationId: payload.triggerId,
            causationId,
            payload,
          },
        ],
      },
    ],
  };
}
