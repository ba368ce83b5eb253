import type { Engine, SampledSequence, SampleRequest, SampleResult } from '#hotbed/engine';
import { StopMatcher, stopLength, type TokenDecoder } from '#hotbed/models';

/**
 * Samples until a stop string is complete in a sequence's text, at the latest as `request.params` say. The engine is
 * told to stop as soon as it is seen, and may be a few tokens further by then; the result is cut by its tokens alone, so
 * it does not show how far.
 */
export async function sampleUntil(
  engine: Engine,
  request: SampleRequest,
  stopStrings: readonly string[],
  decoder: TokenDecoder,
  signal: AbortSignal,
): Promise<SampleResult> {
  const matchers = request.seeds.map(() => new StopMatcher(decoder, stopStrings));
  const result = await engine.sample(request, {
    signal,
    onTokens: (tokens, stop) => {
      for (const { sequence, token } of tokens) {
        const matcher = matchers[sequence]!;
        if (matcher.length === null && matcher.push(token)) stop(sequence, matcher.length!);
      }
    },
  });
  return { ...result, sequences: result.sequences.map((sequence) => cut(sequence, stopStrings, decoder)) };
}

function cut(sequence: SampledSequence, stopStrings: readonly string[], decoder: TokenDecoder): SampledSequence {
  const length = stopLength(decoder, sequence.tokens, stopStrings);
  if (length === null) return sequence;
  return {
    tokens: sequence.tokens.slice(0, length),
    policyLogprobs: sequence.policyLogprobs.slice(0, length),
    samplingLogprobs: sequence.samplingLogprobs.slice(0, length),
    stopReason: 'stop',
    top: null,
  };
}
