import { LOSS_NAMES, type Branch, type Datum, type Loss, type LossName } from '../src/engine.types';
import type { Random } from './random';

/** Training data under a loss with everything that it takes, drawn. */
export interface Training {
  loss: Loss;
  datums: Datum[];
}

export function drawTraining(random: Random, vocabulary: number, name: LossName = random.pick(LOSS_NAMES)): Training {
  const loss = drawLoss(random, name);
  return { loss, datums: random.list(random.integer(1, 4), () => drawDatum(random, vocabulary, name)) };
}

export function drawLoss(random: Random, name: LossName): Loss {
  const clips = name === 'ppo' || name === 'cispo' || name === 'gspo';
  return {
    name,
    clipLow: clips ? 0.8 : null,
    clipHigh: clips ? 1.2 : null,
    beta: name === 'dro' ? random.real(0, 0.2) : null,
  };
}

/** A prompt with one to three branches; now and then several targets per position (gspo has one). */
export function drawDatum(random: Random, vocabulary: number, loss: LossName): Datum {
  const prompt = drawPrompt(random, vocabulary);
  return { prompt, branches: random.list(random.integer(1, 3), () => drawBranch(random, vocabulary, loss)) };
}

/** Now and then across the boundary of a 64-key attention block. */
export function drawPrompt(random: Random, vocabulary: number): Int32Array {
  const length = random.chance(0.15) ? random.integer(60, 90) : random.integer(1, 20);
  return drawTokens(random, vocabulary, length);
}

export function drawTokens(random: Random, vocabulary: number, length: number): Int32Array {
  return Int32Array.from(random.list(length, () => random.integer(0, vocabulary - 1)));
}

function drawBranch(random: Random, vocabulary: number, loss: LossName): Branch {
  const length = random.integer(1, 10);
  const several = loss !== 'gspo' && random.chance(0.25) ? random.integer(2, 4) : 1;
  const floats = (low: number, high: number) =>
    Float32Array.from(random.list(length * several, () => random.real(low, high)));
  const hasAdvantages = loss !== 'cross_entropy' && loss !== 'given_gradient';
  return {
    tokens: drawTokens(random, vocabulary, length),
    weights: loss === 'cross_entropy' ? floats(0, 1) : null,
    logprobs: hasAdvantages ? floats(-8, -2) : null,
    advantages: hasAdvantages ? floats(-1, 1) : null,
    targets: several === 1 ? null : drawTokens(random, vocabulary, length * several),
    gradients: loss === 'given_gradient' ? floats(-1, 1) : null,
    mask: loss === 'gspo' ? Float32Array.from(random.list(length, () => random.integer(0, 1))) : null,
  };
}
