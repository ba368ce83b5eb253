import { SYSTEM_TENANT_ID, newId, streamId, type AnyNewEvent, type AppendItem } from '#hotbed/contracts';

type WorkerFact = Extract<
  AnyNewEvent,
  { type: 'WorkerStarted' | 'BaseModelLoaded' | 'LeaseClaimed' | 'WorkerStopped' }
>;
type TypeAndPayload = { [T in WorkerFact['type']]: Pick<Extract<WorkerFact, { type: T }>, 'type' | 'payload'> };

/** Facts about one worker's life, in its own stream. */
export function workerItem(
  workerId: string,
  facts: readonly TypeAndPayload[WorkerFact['type']][],
  nowMs: number,
): AppendItem {
  const events = facts.map((fact): AnyNewEvent => ({
    eventId: newId(),
    tenantId: SYSTEM_TENANT_ID,
    occurredAtMs: nowMs,
    actor: 'app:gpu-worker',
    correlationId: workerId,
    causationId: null,
    ...fact,
  }));
  return { writes: [{ streamId: streamId('worker', workerId), expected: 'any', events }] };
}
