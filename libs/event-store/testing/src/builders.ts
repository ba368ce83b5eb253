import {
  int32Tensor,
  newId,
  streamId,
  type AnyNewEvent,
  type AppendItem,
  type EventType,
  type ExpectedVersion,
  type NewEvent,
  type PayloadOf,
} from '#hotbed/contracts';

/** Fixed, so that a failing test reads the same each time; order comes from the log. */
const OCCURRED_AT_MS = 1_764_547_200_000;

/** An event with everything but type, tenant and payload filled in. */
export function newEvent<T extends EventType>(
  type: T,
  tenantId: string,
  payload: PayloadOf<T>,
  overrides: Partial<NewEvent<T>> = {},
): AnyNewEvent {
  return {
    eventId: newId(),
    type,
    tenantId,
    occurredAtMs: OCCURRED_AT_MS,
    actor: 'test',
    correlationId: 'test',
    causationId: null,
    payload,
    ...overrides,
  } as AnyNewEvent;
}

export function aRecordReceived(
  tenantId: string,
  dataStreamId: string,
  content: Partial<PayloadOf<'RecordReceived'>['content']> = {},
  overrides: Partial<NewEvent<'RecordReceived'>> = {},
): AnyNewEvent {
  const recordId = newId();
  return newEvent(
    'RecordReceived',
    tenantId,
    {
      recordId,
      dataStreamId,
      identity: { kind: 'key', key: recordId },
      content: { prompt: 'cat', answer: 'tac', subjectIds: [], metadata: {}, ...content },
    },
    overrides,
  );
}

/** One item that appends `count` records to a data stream. */
export function aStreamOfRecords(
  tenantId: string,
  dataStreamId: string,
  count = 1,
  expected: ExpectedVersion = 'any',
): AppendItem {
  const events = Array.from({ length: count }, () => aRecordReceived(tenantId, dataStreamId));
  return { writes: [{ streamId: streamId('data-stream', dataStreamId), expected, events }] };
}

const BASE = { baseDigest: 'b'.repeat(64), numericsId: 'f32-1' };

/** AdapterCreated with its head row: state(0). */
export function anAdapterCreation(tenantId: string, adapterId: string): AppendItem {
  const spec = { rank: 4, alpha: 8, rslora: false, targets: ['q' as const], seed: '1' };
  const payload = { adapterId, name: `adapter-${adapterId}`, spec, ...BASE, experimentId: null };
  return {
    writes: [
      {
        streamId: streamId('adapter', adapterId),
        expected: 'none',
        events: [newEvent('AdapterCreated', tenantId, payload)],
      },
    ],
    heads: [{ change: 'create', adapterId }],
  };
}

/** Accepts checkpoint operations `first..last` of an adapter. */
export function anAcceptance(tenantId: string, adapterId: string, first: bigint, last = first): AppendItem {
  const events: AnyNewEvent[] = [];
  for (let n = first; n <= last; n++) {
    events.push(
      newEvent('OperationAccepted', tenantId, {
        adapterId,
        opIndex: n.toString(),
        operation: { kind: 'checkpoint', label: null },
        numericsId: BASE.numericsId,
        origin: { kind: 'client', sessionId: 'test' },
      }),
    );
  }
  return {
    writes: [{ streamId: streamId('adapter', adapterId), expected: 'any', events }],
    heads: [{ change: 'accept', adapterId, first, last }],
  };
}

/** Records that operation n was applied under a lease epoch. */
export function anApplication(tenantId: string, adapterId: string, opIndex: bigint, leaseEpoch: bigint): AppendItem {
  const event = newEvent('OperationApplied', tenantId, {
    adapterId,
    opIndex: opIndex.toString(),
    kind: 'checkpoint',
    workerId: adapterId,
    leaseEpoch: leaseEpoch.toString(),
    stateDigest: 'd'.repeat(64),
    outputDigest: null,
    metrics: { lossSum: null, tokens: null, gradNorm: null, step: null },
  });
  return {
    writes: [{ streamId: streamId('adapter', adapterId), expected: 'any', events: [event] }],
    heads: [{ change: 'apply', adapterId, opIndex, leaseEpoch }],
  };
}

/** A rollout request on the plain base, one sample for each prompt, with its rows in the work list. */
export function aRolloutRequest(tenantId: string, rolloutsKey: string, requestId: string, prompts = 1): AppendItem {
  const promptIndexes = Array.from({ length: prompts }, (_, i) => i);
  const stream = streamId('rollouts', rolloutsKey);
  const event = newEvent('RolloutsRequested', tenantId, {
    requestId,
    purpose: 'sample',
    experimentId: null,
    runOrdinal: null,
    step: null,
    adapterId: null,
    opIndex: null,
    ...BASE,
    prompts: promptIndexes.map((promptIndex) => ({
      promptIndex,
      record: null,
      subjectIds: [],
      tokens: int32Tensor([1, 2, 3]),
      seeds: ['7'],
    })),
    sampling: { temperature: 1, topK: 0, topP: 1, maxTokens: 4, stopTokenIds: [] },
    reward: null,
  });
  return {
    writes: [{ streamId: stream, expected: 'any', events: [event] }],
    requests: [
      { change: 'open', requestId, promptIndexes, streamId: stream, tenantId, adapterId: null, opIndex: null },
    ],
  };
}

/** The answer to one prompt of such a request. */
export function aRolloutAnswer(
  tenantId: string,
  rolloutsKey: string,
  requestId: string,
  promptIndex: number,
): AppendItem {
  const event = newEvent('RolloutsFailed', tenantId, {
    requestId,
    requestVersion: '1',
    promptIndex,
    experimentId: null,
    code: 'test',
    message: 'test',
  });
  return {
    writes: [{ streamId: streamId('rollouts', rolloutsKey), expected: 'any', events: [event] }],
    requests: [{ change: 'answer', requestId, promptIndex }],
  };
}
