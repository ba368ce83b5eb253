import {
  streamId,
  type AdapterHeadChange,
  type AnyNewEvent,
  type AppendItem,
  type ExpectedVersion,
  type RequestChange,
  type StreamWrite,
} from '#hotbed/contracts';
import type { Fact, OpenExperiment } from './experiment';

/** Everything about an event that is not its content. */
export interface Occasion {
  tenantId: string;
  nowMs: number;
  actor: string;
  causationId: string | null;
  newEventId: () => string;
  /** Version of the experiment's stream that the decision was made at; 0 = it does not exist yet. */
  experimentVersion: bigint;
}

/**
 * Facts of one experiment as one all-or-nothing append item: events by stream, operation indices proposed, rollout
 * requests opened for the workers. The experiment's id correlates everything that it causes.
 */
export function toAppendItem(experiment: OpenExperiment, facts: readonly Fact[], occasion: Occasion): AppendItem {
  const { experimentId, adapterId } = experiment.created;
  const writes = new Map<string, AnyNewEvent[]>();
  for (const fact of facts) {
    const stream = streamOf(fact, experimentId, adapterId);
    const events = writes.get(stream) ?? [];
    events.push({
      eventId: occasion.newEventId(),
      type: fact.type,
      tenantId: occasion.tenantId,
      occurredAtMs: occasion.nowMs,
      actor: occasion.actor,
      correlationId: experimentId,
      causationId: occasion.causationId,
      payload: fact.payload,
    } as AnyNewEvent);
    writes.set(stream, events);
  }
  return {
    writes: [...writes].map(([stream, events]): StreamWrite => ({
      streamId: stream,
      expected: expectedOf(stream, experimentId, occasion),
      events,
    })),
    heads: headsOf(facts, adapterId),
    requests: requestsOf(facts, occasion.tenantId),
  };
}

function streamOf(fact: Fact, experimentId: string, adapterId: string): string {
  switch (fact.type) {
    case 'AdapterCreated':
    case 'OperationAccepted':
      return streamId('adapter', adapterId);
    case 'RolloutsRequested':
      return streamId('rollouts', experimentId);
    default:
      return streamId('experiment', experimentId);
  }
}

/** Workers and rewarder write to the other two streams at any time; op indices guard the adapter's. */
function expectedOf(stream: string, experimentId: string, { experimentVersion }: Occasion): ExpectedVersion {
  if (experimentVersion === 0n) return 'none';
  return stream === streamId('experiment', experimentId) ? experimentVersion : 'any';
}

function headsOf(facts: readonly Fact[], adapterId: string): AdapterHeadChange[] {
  const accepted = facts.flatMap((fact) => (fact.type === 'OperationAccepted' ? [BigInt(fact.payload.opIndex)] : []));
  const [first] = accepted;
  const last = accepted.at(-1);
  if (first !== undefined && last !== undefined) return [{ change: 'accept', adapterId, first, last }];
  return facts.some((fact) => fact.type === 'AdapterCreated') ? [{ change: 'create', adapterId }] : [];
}

function requestsOf(facts: readonly Fact[], tenantId: string): RequestChange[] {
  return facts.flatMap((fact): RequestChange[] => {
    if (fact.type !== 'RolloutsRequested') return [];
    const { requestId, prompts, adapterId, opIndex, experimentId } = fact.payload;
    if (experimentId === null) throw new Error(`request ${requestId} of an experiment does not name it`);
    return [
      {
        change: 'open',
        requestId,
        promptIndexes: prompts.map((prompt) => prompt.promptIndex),
        streamId: streamId('rollouts', experimentId),
        tenantId,
        adapterId,
        opIndex: opIndex === null ? null : BigInt(opIndex),
      },
    ];
  });
}
