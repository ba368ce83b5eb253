import {
  NotFound,
  newId,
  toInt32Array,
  type AnyNewEvent,
  type LaneHandler,
  type RolloutsRequested,
  type StoredEvent,
} from '#hotbed/contracts';
import { completionText } from '#hotbed/models';
import { VerifierError, type Completion } from '#hotbed/verifiers';
import type { Judge } from '../judging/judge';
import type { PastEvents } from './past-events';

/** Text of token ids, without special tokens. */
export interface TextDecoder {
  textOf(baseDigest: string): Promise<{ tokenizer: { decode(ids: Int32Array | readonly number[]): string } }>;
}

type Completed = StoredEvent<'RolloutsCompleted'>;

/**
 * Lane over `rollouts:*`: completions of a request that names a reward get one, or the reason why not. Verifiers are
 * pure, so a group judged again after a crash gets the same rewards; the lane sees to it that one set is recorded.
 */
export function rewardRollouts(
  past: PastEvents,
  bases: TextDecoder,
  judge: Judge,
  now: () => number = Date.now,
): LaneHandler {
  return async (events, uow) => {
    const rewarded = new Map<string, AnyNewEvent[]>();
    for (const event of events) {
      if (event.type !== 'RolloutsCompleted') continue;
      const request = await past.request(event.streamId, event.payload.requestVersion);
      if (request === null) throw new NotFound('rollouts request', event.payload.requestId);
      if (request.reward === null) continue;
      const outcome = await rewardOf(event, request, past, bases, judge);
      const own = rewarded.get(event.streamId) ?? [];
      own.push({
        eventId: newId(),
        tenantId: event.tenantId,
        occurredAtMs: now(),
        actor: 'app:rewarder',
        correlationId: event.correlationId,
        causationId: event.eventId,
        ...outcome,
      });
      rewarded.set(event.streamId, own);
    }
    if (rewarded.size === 0) return;
    await uow.append([
      { writes: [...rewarded].map(([streamId, own]) => ({ streamId, expected: 'exists', events: own })) },
    ]);
  };
}

async function rewardOf(
  event: Completed,
  request: RolloutsRequested,
  past: PastEvents,
  bases: TextDecoder,
  judge: Judge,
) {
  const { requestId, requestVersion, promptIndex, experimentId } = event.payload;
  const about = {
    requestId,
    requestVersion,
    completedVersion: event.streamVersion.toString(),
    promptIndex,
    experimentId,
  };
  const rollouts = [...event.payload.rollouts].sort((a, b) => a.sampleIndex - b.sampleIndex);
  try {
    const completions = await completionsOf(rollouts, promptIndex, request, past, bases);
    const { verdicts, configDigest } = await judge.judge(request.reward!, completions);
    return {
      type: 'RewardsAssigned' as const,
      payload: {
        ...about,
        sampledTokens: rollouts.reduce((sum, rollout) => sum + (rollout.tokens.shape[0] ?? 0), 0),
        source: { verifier: request.reward!.verifier, configDigest },
        rewards: rollouts.map(({ rolloutId, sampleIndex }, i) => ({ rolloutId, sampleIndex, ...verdicts[i]! })),
      },
    };
  } catch (error) {
    if (!(error instanceof VerifierError)) throw error;
    return { type: 'RewardsFailed' as const, payload: { ...about, code: error.code, message: error.message } };
  }
}

async function completionsOf(
  rollouts: Completed['payload']['rollouts'],
  promptIndex: number,
  request: RolloutsRequested,
  past: PastEvents,
  bases: TextDecoder,
): Promise<Completion[]> {
  const { tokenizer } = await bases.textOf(request.baseDigest);
  const prompt = request.prompts.find((candidate) => candidate.promptIndex === promptIndex);
  if (prompt === undefined) throw new VerifierError('prompt_not_found', `the request has no prompt ${promptIndex}`);
  const record = prompt.record === null ? null : await past.record(prompt.record);
  const text = record?.prompt ?? tokenizer.decode(toInt32Array(prompt.tokens));
  return rollouts.map((rollout) => ({
    prompt: text,
    completion: completionText(tokenizer, toInt32Array(rollout.tokens), request.sampling.stopStrings),
    answer: record?.answer ?? null,
    metadata: record?.metadata ?? {},
  }));
}
