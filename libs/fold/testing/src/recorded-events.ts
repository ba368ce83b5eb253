import {
  float32Tensor,
  int32Tensor,
  parseStreamId,
  rolloutId,
  streamId,
  type AnyStoredEvent,
  type EventType,
  type Operation,
  type PayloadOf,
} from '#hotbed/contracts';
import type { EventReads } from '../../src/event-reads';

export const TENANT = '0193a000-0000-7000-8000-000000000001';
export const ADAPTER = '0193a000-0000-7000-8000-00000000000a';
export const REQUEST = '0193a000-0000-7000-8000-00000000000b';
export const WORKER = '0193a000-0000-7000-8000-00000000000c';
export const BASE_DIGEST = 'ba'.repeat(32);

/** Events in the order in which they were recorded: positions and versions follow from it. */
export class RecordedEvents implements EventReads {
  private readonly events: AnyStoredEvent[] = [];

  /** @returns the event's global position. */
  record<T extends EventType>(stream: string, type: T, payload: PayloadOf<T>): bigint {
    const globalPosition = BigInt(this.events.length + 1);
    const streamVersion = BigInt(this.events.filter((e) => e.streamId === stream).length + 1);
    this.events.push({
      eventId: `0193a000-0000-7000-8000-${globalPosition.toString().padStart(12, '0')}`,
      streamId: stream,
      category: parseStreamId(stream).category,
      type,
      schemaVersion: 1,
      tenantId: TENANT,
      occurredAtMs: 1,
      recordedAtMs: 1,
      actor: 'app:test',
      correlationId: REQUEST,
      causationId: null,
      keyId: null,
      globalPosition,
      streamVersion,
      eventHash: '00'.repeat(32),
      payload,
    } as unknown as AnyStoredEvent);
    return globalPosition;
  }

  get all(): readonly AnyStoredEvent[] {
    return this.events;
  }

  async readStream(
    stream: string,
    options: { after?: bigint; upTo?: bigint; limit?: number } = {},
  ): Promise<AnyStoredEvent[]> {
    return this.events
      .filter((e) => e.streamId === stream)
      .filter((e) => e.streamVersion > (options.after ?? 0n) && e.streamVersion <= (options.upTo ?? 1n << 62n))
      .slice(0, options.limit);
  }
}

export const ROLLOUTS = streamId('rollouts', '0193a000-0000-7000-8000-00000000000d');

/** Two prompts, two samples each; the completions of prompt 1 were recorded before those of prompt 0. */
export function twoPromptsAnsweredOutOfOrder(): RecordedEvents {
  const events = new RecordedEvents();
  events.record(ROLLOUTS, 'RolloutsRequested', {
    requestId: REQUEST,
    purpose: 'training',
    experimentId: null,
    runOrdinal: null,
    step: null,
    adapterId: ADAPTER,
    opIndex: '0',
    baseDigest: BASE_DIGEST,
    numericsId: 'f32-1',
    prompts: [0, 1].map((promptIndex) => ({
      promptIndex,
      record: null,
      subjectIds: [],
      tokens: int32Tensor([1, 10 + promptIndex]),
      seeds: ['1', '2'],
    })),
    sampling: { temperature: 1, topK: 0, topP: 1, maxTokens: 4, stopTokenIds: [2] },
    reward: null,
  });
  for (const promptIndex of [1, 0]) {
    events.record(ROLLOUTS, 'RolloutsCompleted', {
      requestId: REQUEST,
      requestVersion: '1',
      promptIndex,
      experimentId: null,
      adapterId: ADAPTER,
      opIndex: '0',
      rollouts: [0, 1].map((sampleIndex) => ({
        rolloutId: rolloutId(REQUEST, promptIndex, sampleIndex),
        sampleIndex,
        tokens: int32Tensor([20 + promptIndex, 30 + sampleIndex, 2].slice(0, 2 + sampleIndex)),
        policyLogprobs: float32Tensor([-0.5, -0.25, -0.125].slice(0, 2 + sampleIndex)),
        samplingLogprobs: float32Tensor([-9, -9, -9].slice(0, 2 + sampleIndex)),
        stopReason: 'stop' as const,
      })),
    });
  }
  return events;
}

type ForwardBackward = Extract<Operation, { kind: 'forward_backward' }>;

/** Trains on both prompts of `twoPromptsAnsweredOutOfOrder`. */
export function trainingOnBothPrompts(): ForwardBackward {
  return {
    kind: 'forward_backward',
    loss: { name: 'importance_sampling' },
    datums: [0, 1].map((promptIndex) => ({
      source: 'rollouts' as const,
      streamId: ROLLOUTS,
      requestVersion: '1',
      completedVersion: promptIndex === 1 ? '2' : '3',
      promptIndex,
      recordId: null,
      subjectIds: [],
      branches: [0, 1].map((sampleIndex) => ({
        rolloutId: rolloutId(REQUEST, promptIndex, sampleIndex),
        sampleIndex,
      })),
      advantages: float32Tensor([1, -1]),
    })),
  };
}
