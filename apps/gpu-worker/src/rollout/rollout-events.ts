import {
  float32Tensor,
  int32Tensor,
  newId,
  rolloutId,
  type AnyNewEvent,
  type AppendItem,
  type RolloutsRequested,
  type StoredEvent,
} from '#hotbed/contracts';
import type { SampleResult } from '#hotbed/engine';

type Requested = StoredEvent<'RolloutsRequested'>;
type Prompt = RolloutsRequested['prompts'][number];

/** One prompt's completions, by sample index; refused by the store when the prompt has been answered before. */
export function completedItem(request: Requested, prompt: Prompt, result: SampleResult, nowMs: number): AppendItem {
  const { requestId, experimentId, adapterId, opIndex } = request.payload;
  const { promptIndex } = prompt;
  return answer(request, promptIndex, {
    ...common(request, nowMs),
    type: 'RolloutsCompleted',
    payload: {
      requestId,
      requestVersion: request.streamVersion.toString(),
      promptIndex,
      experimentId,
      adapterId,
      opIndex,
      rollouts: result.sequences.map((sequence, sampleIndex) => ({
        rolloutId: rolloutId(requestId, promptIndex, sampleIndex),
        sampleIndex,
        tokens: int32Tensor(sequence.tokens),
        policyLogprobs: float32Tensor(sequence.policyLogprobs),
        samplingLogprobs: float32Tensor(sequence.samplingLogprobs),
        stopReason: sequence.stopReason,
      })),
    },
  });
}

/** For what will fail however often it is tried. */
export function failedItem(
  request: Requested,
  promptIndex: number,
  error: { code: string; message: string },
  nowMs: number,
): AppendItem {
  const { requestId, experimentId } = request.payload;
  return answer(request, promptIndex, {
    ...common(request, nowMs),
    type: 'RolloutsFailed',
    payload: {
      requestId,
      requestVersion: request.streamVersion.toString(),
      promptIndex,
      experimentId,
      code: error.code,
      message: error.message,
    },
  });
}

function answer(request: Requested, promptIndex: number, event: AnyNewEvent): AppendItem {
  return {
    writes: [{ streamId: request.streamId, expected: 'exists', events: [event] }],
    requests: [{ change: 'answer', requestId: request.payload.requestId, promptIndex }],
  };
}

function common(request: Requested, nowMs: number) {
  return {
    eventId: newId(),
    tenantId: request.tenantId,
    occurredAtMs: nowMs,
    actor: 'app:gpu-worker',
    correlationId: request.correlationId,
    causationId: request.eventId,
  };
}
