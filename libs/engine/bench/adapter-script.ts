import type {
  AdamParams,
  AdapterSpec,
  Engine,
  ForwardBackwardResult,
  SampleRequest,
  SampleResult,
} from '../src/engine.types';
import { TARGET_MODULES } from '../src/engine.types';
import { CONTEXT_LENGTH, type RandomModelShape } from './random-model';
import type { Random } from './random';
import { drawPrompt, drawTokens, drawTraining, type Training } from './random-training';

interface Round {
  trainings: Training[];
  adam: AdamParams;
  /** Sampled from the policy after this round's step, while the adapter trains on. */
  requests: Omit<SampleRequest, 'policy'>[];
  /** Follows what the first request's first sequence drew, as the next turn of a conversation. */
  nextTurn: Int32Array;
  logitsOf: Int32Array;
}

/** One adapter's whole life: drawn once, played as often as wanted. */
export interface AdapterScript {
  spec: AdapterSpec;
  rounds: Round[];
  /** Adds to the gradient after the last step, so that the final state has one. */
  last: Training;
}

/** Everything that a play returned, as named bytes. */
export type Trace = Map<string, Uint8Array>;

/** @param common what prompts of all scripts may begin with, at least 130 ids: for the prefix cache to find, or to mix up */
export function drawScript(random: Random, shape: RandomModelShape, common: Int32Array): AdapterScript {
  const tokens = (low: number, high: number) => drawTokens(random, shape.vocabulary, random.integer(low, high));
  const prompt = () => drawPrompt(random, shape.vocabulary);
  const promptOfMany = () => Int32Array.of(...common.slice(0, random.integer(64, 130)), ...tokens(0, 10));
  const training = () => drawTraining(random, shape.vocabulary);
  const request = (): Omit<SampleRequest, 'policy'> => ({
    prompt: random.chance(0.4) ? promptOfMany() : prompt(),
    seeds: random.list(random.integer(1, 4), () => random.seed()),
    params: {
      temperature: random.pick([0, 0.7, 1]),
      topK: random.pick([0, 0, 5]),
      topP: random.pick([1, 1, 0.9]),
      maxTokens: random.chance(0.1) ? random.integer(120, 180) : random.integer(8, 48),
      stopTokenIds: [2],
    },
    promptLogprobs: random.chance(0.3),
  });
  const round = (): Round => ({
    trainings: random.list(random.integer(1, 2), training),
    adam: {
      learningRate: random.real(1e-3, 1e-2),
      beta1: 0.9,
      beta2: random.pick([0.95, 0.999]),
      eps: 1e-8,
      weightDecay: random.pick([0, 0.01]),
      gradClipNorm: random.pick([0, 1]),
    },
    requests: random.list(random.integer(1, 4), request),
    nextTurn: tokens(1, 12),
    logitsOf: tokens(1, Math.min(40, CONTEXT_LENGTH)),
  });
  const targets = TARGET_MODULES.filter((name) => random.chance(name === 'lm_head' ? 0.3 : 0.6));
  return {
    spec: {
      rank: random.pick([1, 2, 3, 4, 8, 16, 33]),
      alpha: random.real(1, 32),
      rslora: random.chance(0.3),
      targets: targets.length > 0 ? targets : ['q'],
      seed: random.seed(),
    },
    rounds: random.list(random.integer(1, 3), round),
    last: training(),
  };
}

/** Lives the script on an engine. `pause` is awaited between calls: arrival times, which must not matter. */
export async function play(engine: Engine, script: AdapterScript, pause: () => Promise<void>): Promise<Trace> {
  const trace: Trace = new Map();
  const inBackground: Promise<void>[] = [];
  await pause();
  const adapter = await engine.createAdapter(script.spec);
  for (const [index, round] of script.rounds.entries()) {
    for (const [call, { loss, datums }] of round.trainings.entries()) {
      await pause();
      keepTraining(trace, `round ${index} training ${call}`, await engine.forwardBackward(adapter, loss, datums));
    }
    keepTensors(trace, `round ${index} gradient`, await engine.tensors(adapter, 'gradient'));
    const { gradNorm } = await engine.optimStep(adapter, round.adam);
    keep(trace, `round ${index} gradient norm`, Float64Array.of(gradNorm));
    const policy = await engine.pin(adapter);
    await pause();
    const sampled = Promise.all(round.requests.map((request) => engine.sample({ ...request, policy })));
    const logits = engine.logits(policy, round.logitsOf);
    inBackground.push(
      Promise.all([sampled, logits]).then(async ([results, values]) => {
        for (const [call, samples] of results.entries()) keepSamples(trace, `round ${index} sample ${call}`, samples);
        keep(trace, `round ${index} logits`, values);
        const next = conversation(round, results);
        if (next !== null) keepSamples(trace, `round ${index} next turn`, await engine.sample({ ...next, policy }));
        engine.release(policy);
      }),
    );
  }
  await pause();
  keepTraining(trace, 'last training', await engine.forwardBackward(adapter, script.last.loss, script.last.datums));
  for (const what of ['weight', 'm', 'v', 'gradient'] as const) {
    keepTensors(trace, what, await engine.tensors(adapter, what));
  }
  keep(trace, 'state digest', Buffer.from(await engine.stateDigest(adapter, '1'), 'hex'));
  await Promise.all(inBackground);
  await engine.dropAdapter(adapter);
  return trace;
}

/** The request of the next turn; null = the context has no room for it. */
function conversation({ requests, nextTurn }: Round, results: SampleResult[]): Omit<SampleRequest, 'policy'> | null {
  const [request, result] = [requests[0], results[0]];
  if (request === undefined || result === undefined) return null;
  const prompt = Int32Array.of(...request.prompt, ...(result.sequences[0]?.tokens ?? []), ...nextTurn);
  return prompt.length < CONTEXT_LENGTH ? { ...request, prompt } : null;
}

/** How many bits of `other` are not those of `alone`; a missing or longer value counts with all its bits. */
export function differingBits(alone: Trace, other: Trace): number {
  let bits = 0;
  for (const name of new Set([...alone.keys(), ...other.keys()])) {
    const a = alone.get(name) ?? new Uint8Array();
    const b = other.get(name) ?? new Uint8Array();
    bits += 8 * Math.abs(a.length - b.length);
    for (let i = 0; i < Math.min(a.length, b.length); i++) {
      for (let x = (a[i] ?? 0) ^ (b[i] ?? 0); x !== 0; x &= x - 1) bits++;
    }
  }
  return bits;
}

function keep(trace: Trace, name: string, values: NodeJS.TypedArray): void {
  trace.set(name, new Uint8Array(values.buffer, values.byteOffset, values.byteLength));
}

function keepTraining(trace: Trace, name: string, result: ForwardBackwardResult): void {
  keep(trace, `${name} loss`, Float64Array.of(result.lossSum));
  for (const [i, datum] of result.logprobs.entries()) {
    for (const [j, branch] of datum.entries()) keep(trace, `${name} logprobs ${i} ${j}`, branch);
  }
}

function keepSamples(trace: Trace, name: string, result: SampleResult): void {
  if (result.promptLogprobs !== null) keep(trace, `${name} prompt`, result.promptLogprobs);
  for (const [i, sequence] of result.sequences.entries()) {
    keep(trace, `${name} ${i} tokens`, sequence.tokens);
    keep(trace, `${name} ${i} policy logprobs`, sequence.policyLogprobs);
    keep(trace, `${name} ${i} sampling logprobs`, sequence.samplingLogprobs);
  }
}

function keepTensors(trace: Trace, name: string, tensors: Map<string, Float32Array>): void {
  for (const [tensor, values] of tensors) keep(trace, `${name} ${tensor}`, values);
}
