import {
  InvalidInput,
  takesAdvantages,
  toFloat32Array,
  toInt32Array,
  type DatumPayload,
  type InlineDatum,
  type Operation,
  type RolloutDatum,
} from '#hotbed/contracts';
import type { Branch, Datum } from '#hotbed/engine';
import type { EventReads } from './event-reads';
import { readReferences, type References } from './references';

export type ForwardBackward = Extract<Operation, { kind: 'forward_backward' }>;

/**
 * The engine's datums of an operation, in the operation's order: inline tensors decoded, rollouts looked up.
 * A function of the operation and of events that were in the log before it: `acceptedAt` is the global position of its
 * OperationAccepted, and a reference to anything later is refused, so the answer is the same at any time.
 * @throws InvalidInput naming the datum that refers to nothing, or whose tensors do not fit together.
 */
export async function datumsOf(operation: ForwardBackward, acceptedAt: bigint, events: EventReads): Promise<Datum[]> {
  const references = await readReferences(operation.datums, acceptedAt, events);
  return operation.datums.map((datum, i) => engineDatum(datum, `datums[${i}]`, operation.loss.name, references));
}

function engineDatum(
  datum: DatumPayload,
  path: string,
  loss: ForwardBackward['loss']['name'],
  references: References,
): Datum {
  return datum.source === 'inline' ? inlineDatum(datum, path) : rolloutDatum(datum, path, loss, references);
}

function inlineDatum(datum: InlineDatum, path: string): Datum {
  return {
    prompt: ints(datum.prompt, `${path}.prompt`),
    branches: datum.branches.map((branch, b) => ({
      tokens: ints(branch.tokens, `${path}.branches[${b}].tokens`),
      weights: floats(branch.weights, `${path}.branches[${b}].weights`),
      logprobs: floats(branch.logprobs, `${path}.branches[${b}].logprobs`),
      advantages: floats(branch.advantages, `${path}.branches[${b}].advantages`),
      targets: branch.targets ? ints(branch.targets, `${path}.branches[${b}].targets`) : null,
      gradients: floats(branch.gradients ?? null, `${path}.branches[${b}].gradients`),
      mask: floats(branch.mask ?? null, `${path}.branches[${b}].mask`),
    })),
  };
}

/** One advantage per completion, used at each of its tokens; a sequence's ratio is over all of them. */
function rolloutDatum(
  datum: RolloutDatum,
  path: string,
  loss: ForwardBackward['loss']['name'],
  references: References,
): Datum {
  if (!takesAdvantages(loss)) throw refused(path, `recorded rollouts carry advantages, ${loss} takes none`);
  const { prompt, completed } = references.of(datum, path);
  const advantages = floats(datum.advantages, `${path}.advantages`) as Float32Array;
  if (advantages.length !== datum.branches.length) {
    throw refused(`${path}.advantages`, `expected one per branch (${datum.branches.length}), got ${advantages.length}`);
  }
  const branches = datum.branches.map((branch, b): Branch => {
    const rollout = completed.rollouts.find((r) => r.sampleIndex === branch.sampleIndex);
    if (rollout === undefined || rollout.rolloutId !== branch.rolloutId) {
      throw refused(`${path}.branches[${b}]`, `no rollout ${branch.rolloutId} at sample index ${branch.sampleIndex}`);
    }
    const tokens = toInt32Array(rollout.tokens);
    const advantage = new Float32Array(tokens.length).fill(advantages[b] as number);
    return {
      tokens,
      weights: null,
      logprobs: toFloat32Array(rollout.policyLogprobs),
      advantages: advantage,
      mask: loss === 'gspo' ? new Float32Array(tokens.length).fill(1) : null,
    };
  });
  return { prompt: toInt32Array(prompt.tokens), branches };
}

function ints(tensor: InlineDatum['prompt'], path: string): Int32Array {
  if (tensor.dtype !== 'i32') throw refused(path, `expected an i32 tensor, got ${tensor.dtype}`);
  return toInt32Array(tensor);
}

function floats(tensor: InlineDatum['prompt'] | null, path: string): Float32Array | null {
  if (tensor === null) return null;
  if (tensor.dtype !== 'f32') throw refused(path, `expected an f32 tensor, got ${tensor.dtype}`);
  return toFloat32Array(tensor);
}

function refused(path: string, message: string): InvalidInput {
  return new InvalidInput([{ path, message }]);
}
