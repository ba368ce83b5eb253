import {
  DomainError,
  NotFound,
  toFloat32Array,
  toInt32Array,
  type AnyStoredEvent,
  type CommandReply,
  type CommandRequest,
  type EventStore,
  type StoredEvent,
} from '#hotbed/contracts';
import { completionText, type Bases } from '#hotbed/models';

const PAGE = 500;

/** Recorded completions of a sample request, as text. */
export class ReadSamplesHandler {
  constructor(
    private readonly store: EventStore,
    private readonly bases: Bases,
  ) {}

  /** @throws NotFound; IllegalState `not_complete`; EngineFault-like failures of the request under their own code */
  async read(
    tenantId: string,
    { requestId, streamId, requestVersion }: CommandRequest<'orchestrator', 'read-samples'>,
  ): Promise<CommandReply<'orchestrator', 'read-samples'>> {
    let requested: StoredEvent<'RolloutsRequested'> | null = null;
    const completed = new Map<number, StoredEvent<'RolloutsCompleted'>>();
    const after = requestVersion === null ? 0n : BigInt(requestVersion) - 1n;
    for await (const event of eventsOf(this.store, streamId, after)) {
      if (event.tenantId !== tenantId) throw new NotFound('sample request', requestId);
      if (!('requestId' in event.payload) || event.payload.requestId !== requestId) continue;
      if (event.type === 'RolloutsRequested') requested = event;
      if (event.type === 'RolloutsCompleted') completed.set(event.payload.promptIndex, event);
      if (event.type === 'RolloutsFailed') {
        throw new DomainError('IllegalState', event.payload.code, event.payload.message, { context: { requestId } });
      }
      if (requested !== null && completed.size === requested.payload.prompts.length) break;
    }
    if (requested === null) throw new NotFound('sample request', requestId);
    const { prompts, baseDigest, sampling } = requested.payload;
    if (completed.size < prompts.length) {
      throw new DomainError(
        'IllegalState',
        'not_complete',
        `${completed.size} of ${prompts.length} prompts are answered; ask again after the RolloutsCompleted events`,
        { context: { answered: completed.size, prompts: prompts.length }, retryable: true },
      );
    }
    const { tokenizer } = await this.bases.textOf(baseDigest);
    return {
      prompts: prompts.map((prompt) => ({
        promptIndex: prompt.promptIndex,
        prompt: tokenizer.decode(toInt32Array(prompt.tokens)),
        completions: (completed.get(prompt.promptIndex)?.payload.rollouts ?? []).map((rollout) => {
          const tokens = toInt32Array(rollout.tokens);
          return {
            rolloutId: rollout.rolloutId,
            text: completionText(tokenizer, tokens, sampling.stopStrings),
            tokens: [...tokens],
            logprobs: [...toFloat32Array(rollout.samplingLogprobs)],
            stopReason: rollout.stopReason,
          };
        }),
      })),
    };
  }
}

async function* eventsOf(store: EventStore, stream: string, from: bigint): AsyncGenerator<AnyStoredEvent> {
  for (let after = from; ;) {
    const events = await store.readStream(stream, { after, limit: PAGE });
    yield* events;
    const last = events.at(-1);
    if (last === undefined || events.length < PAGE) return;
    after = last.streamVersion;
  }
}
