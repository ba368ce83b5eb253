import {
  LOSS_BRANCH_FIELDS,
  float32Tensor,
  int32Tensor,
  type AdapterSpecPayload,
  type BranchField,
  type InlineDatum,
  type LossPayload,
  type Operation,
} from '#hotbed/contracts';
import { Random } from './random';

/** Ids below this exist in every test base. */
export const VOCABULARY = 80;

export const A_SPEC: AdapterSpecPayload = {
  rank: 4,
  alpha: 8,
  rslora: false,
  targets: ['q', 'k', 'v', 'o', 'gate', 'up', 'down'],
  seed: '7',
};

export const STEP: Extract<Operation, { kind: 'optim_step' }> = {
  kind: 'optim_step',
  adam: { learningRate: 3e-3, beta1: 0.9, beta2: 0.95, eps: 1e-8, weightDecay: 0.01, gradClipNorm: 1 },
};

export const CHECKPOINT: Operation = { kind: 'checkpoint', label: null };

/** Supervised data: one prompt with one completion. */
export function aDemonstration(random: Random, tokens = 6): InlineDatum {
  return {
    source: 'inline',
    recordId: null,
    subjectIds: [],
    prompt: int32Tensor(random.tokens(random.integer(1, 8), VOCABULARY)),
    branches: [
      {
        tokens: int32Tensor(random.tokens(tokens, VOCABULARY)),
        weights: float32Tensor(random.floats(tokens, 0, 1)),
        logprobs: null,
        advantages: null,
      },
    ],
  };
}

/** A prompt with several scored completions. */
export function aScoredGroup(random: Random, branches: number, tokens: number): InlineDatum {
  return {
    source: 'inline',
    recordId: null,
    subjectIds: [],
    prompt: int32Tensor(random.tokens(random.integer(2, 12), VOCABULARY)),
    branches: Array.from({ length: branches }, () => ({
      tokens: int32Tensor(random.tokens(tokens, VOCABULARY)),
      weights: null,
      logprobs: float32Tensor(random.floats(tokens, -5, -3)),
      advantages: float32Tensor(new Float32Array(tokens).fill(random.integer(0, 1) === 0 ? -0.5 : 0.5)),
    })),
  };
}

export function supervised(random: Random, datums = 2): Operation {
  return {
    kind: 'forward_backward',
    loss: { name: 'cross_entropy' },
    datums: Array.from({ length: datums }, () => aDemonstration(random)),
  };
}

export function reinforced(
  random: Random,
  options: { groups?: number; branches?: number; tokens?: number } = {},
): Operation {
  const { groups = 2, branches = 3, tokens = 8 } = options;
  return {
    kind: 'forward_backward',
    loss: { name: 'importance_sampling' },
    datums: Array.from({ length: groups }, () => aScoredGroup(random, branches, tokens)),
  };
}

export const EVERY_LOSS: readonly LossPayload[] = [
  { name: 'cross_entropy' },
  { name: 'importance_sampling' },
  { name: 'ppo', clipLow: 0.8, clipHigh: 1.2 },
  { name: 'cispo', clipLow: 0, clipHigh: 4 },
  { name: 'dro', beta: 0.05 },
  { name: 'gspo', clipLow: 0.9, clipHigh: 1.1 },
  { name: 'given_gradient' },
];

/** Two branches with all that the loss takes, `several` targets per position where it is not 1. */
export function underLoss(random: Random, loss: LossPayload, several = 1): Operation {
  const fields: readonly BranchField[] = LOSS_BRANCH_FIELDS[loss.name];
  const branch = (tokens: number): InlineDatum['branches'][number] => {
    const shape = several === 1 ? [tokens] : [tokens, several];
    const numbers = (field: BranchField, low: number, high: number) =>
      fields.includes(field) ? float32Tensor(random.floats(tokens * several, low, high), shape) : null;
    return {
      tokens: int32Tensor(random.tokens(tokens, VOCABULARY)),
      weights: numbers('weights', 0, 1),
      logprobs: numbers('logprobs', -5, -3),
      advantages: numbers('advantages', -1, 1),
      ...(several === 1 ? {} : { targets: int32Tensor(random.tokens(tokens * several, VOCABULARY), shape) }),
      ...(fields.includes('gradients') ? { gradients: numbers('gradients', -1, 1) } : {}),
      ...(fields.includes('mask') ? { mask: float32Tensor(Array.from({ length: tokens }, (_, i) => i % 2)) } : {}),
    };
  };
  return {
    kind: 'forward_backward',
    loss,
    datums: [
      {
        source: 'inline',
        recordId: null,
        subjectIds: [],
        prompt: int32Tensor(random.tokens(4, VOCABULARY)),
        branches: [branch(5), branch(3)],
      },
    ],
  };
}

/**
 * Rounds of [supervised, reinforced, step], a checkpoint after every `checkpointEvery` rounds. The same seed gives the
 * same operations.
 */
export function aTrainingScript(
  seed: number,
  rounds: number,
  checkpointEvery: number,
  size: { groups?: number; branches?: number; tokens?: number } = {},
): Operation[] {
  const random = new Random(seed);
  const operations: Operation[] = [];
  for (let round = 1; round <= rounds; round++) {
    operations.push(supervised(random), reinforced(random, size), STEP);
    if (round % checkpointEvery === 0) operations.push(CHECKPOINT);
  }
  return operations;
}
