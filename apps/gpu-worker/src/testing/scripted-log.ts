import {
  int32Tensor,
  newId,
  streamId,
  type AdapterSpecPayload,
  type AnyStoredEvent,
  type EventStore,
  type EventType,
  type Operation,
  type SamplingPayload,
  type StoredEvent,
} from '#hotbed/contracts';
import { newEvent } from '#hotbed/event-store/testing';

export const SAMPLING: SamplingPayload = { temperature: 1, topK: 0, topP: 1, maxTokens: 6, stopTokenIds: [2] };

/** Writes what the other apps would write: adapters, accepted operations, rollout requests. */
export class ScriptedLog {
  readonly tenantId = newId();
  readonly rolloutsStream = streamId('rollouts', newId());

  constructor(
    readonly events: EventStore,
    private readonly base: { baseDigest: string; numericsId: string },
  ) {}

  async createAdapter(spec: AdapterSpecPayload): Promise<string> {
    const adapterId = newId();
    const payload = { adapterId, name: `a-${adapterId}`, spec, ...this.base, experimentId: null };
    await this.events.append({
      writes: [
        {
          streamId: streamId('adapter', adapterId),
          expected: 'none',
          events: [newEvent('AdapterCreated', this.tenantId, payload)],
        },
      ],
      heads: [{ change: 'create', adapterId }],
    });
    return adapterId;
  }

  /** @returns the operation index of the last one. */
  async accept(adapterId: string, operations: readonly Operation[]): Promise<bigint> {
    const head = await this.events.adapterHead(adapterId);
    const first = head?.nextOpIndex ?? 1n;
    const last = first + BigInt(operations.length) - 1n;
    const events = operations.map((operation, i) =>
      newEvent('OperationAccepted', this.tenantId, {
        adapterId,
        opIndex: (first + BigInt(i)).toString(),
        operation,
        numericsId: this.base.numericsId,
        origin: { kind: 'client', sessionId: 'script' },
      }),
    );
    await this.events.append({
      writes: [{ streamId: streamId('adapter', adapterId), expected: 'exists', events }],
      heads: [{ change: 'accept', adapterId, first, last }],
    });
    return last;
  }

  /** Asks for `samples` completions of each prompt from (adapterId, opIndex); null = the plain base. */
  async request(
    policy: { adapterId: string; opIndex: bigint } | null,
    prompts: readonly (readonly number[])[],
    samples = 2,
    sampling = SAMPLING,
  ): Promise<string> {
    const requestId = newId();
    const payload = {
      requestId,
      purpose: 'sample' as const,
      experimentId: null,
      runOrdinal: null,
      step: null,
      adapterId: policy?.adapterId ?? null,
      opIndex: policy?.opIndex.toString() ?? null,
      ...this.base,
      prompts: prompts.map((tokens, promptIndex) => ({
        promptIndex,
        record: null,
        subjectIds: [],
        tokens: int32Tensor(tokens),
        seeds: Array.from({ length: samples }, (_, s) => `${100 * (promptIndex + 1) + s}`),
      })),
      sampling,
      reward: null,
    };
    await this.events.append({
      writes: [
        {
          streamId: this.rolloutsStream,
          expected: 'any',
          events: [newEvent('RolloutsRequested', this.tenantId, payload)],
        },
      ],
      requests: [
        {
          change: 'open',
          requestId,
          promptIndexes: prompts.map((_, i) => i),
          streamId: this.rolloutsStream,
          tenantId: this.tenantId,
          adapterId: policy?.adapterId ?? null,
          opIndex: policy?.opIndex ?? null,
        },
      ],
    });
    return requestId;
  }

  eventsOf(adapterId: string): Promise<AnyStoredEvent[]> {
    return this.events.readStream(streamId('adapter', adapterId));
  }

  async eventsOfType<T extends EventType>(adapterId: string, type: T): Promise<StoredEvent<T>[]> {
    return ofType(await this.eventsOf(adapterId), type);
  }

  /** Digest of every state with an outcome, by operation index. */
  async digests(adapterId: string): Promise<string[]> {
    const events = await this.eventsOf(adapterId);
    return events.flatMap((event) =>
      event.type === 'OperationApplied' || event.type === 'OperationFailed'
        ? [`${event.payload.opIndex} ${event.payload.stateDigest}`]
        : [],
    );
  }

  /** Answers to a request by prompt index, once there are `count` of them. */
  async answers(requestId: string, count: number, deadlineMs = 60_000): Promise<AnyStoredEvent[]> {
    return until(
      async () => {
        const events = await this.events.readStream(this.rolloutsStream);
        return events.filter(
          (e) => (e.type === 'RolloutsCompleted' || e.type === 'RolloutsFailed') && e.payload.requestId === requestId,
        );
      },
      (answers) => answers.length >= count,
      `${count} answers to ${requestId}`,
      deadlineMs,
    );
  }

  async applied(adapterId: string, opIndex: bigint, deadlineMs = 60_000): Promise<void> {
    await until(
      () => this.events.adapterHead(adapterId),
      (head) => head !== null && head.appliedOpIndex >= opIndex,
      `operation ${opIndex} of ${adapterId}`,
      deadlineMs,
    );
  }
}

export function ofType<T extends EventType>(events: readonly AnyStoredEvent[], type: T): StoredEvent<T>[] {
  return events.filter((event) => event.type === type) as unknown as StoredEvent<T>[];
}

/** Polls until the condition holds. @throws Error naming what did not come within the deadline. */
export async function until<T>(
  read: () => Promise<T> | T,
  holds: (value: T) => boolean,
  what: string,
  deadlineMs = 60_000,
): Promise<T> {
  const deadline = Date.now() + deadlineMs;
  for (;;) {
    const value = await read();
    if (holds(value)) return value;
    if (Date.now() > deadline) throw new Error(`${what} did not come within ${deadlineMs} ms`);
    await new Promise((resolve) => setTimeout(resolve, 10));
  }
}
