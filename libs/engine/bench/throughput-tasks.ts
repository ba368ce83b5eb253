import { SKILLS, SKILL_NAMES, promptOf } from '../../../apps/cli/src/demo/skills';
import { drawWords } from '../../../apps/cli/src/demo/words';
import { ADAM, randomTokens } from './workload';
import { Random } from './random';
import type { Task } from './rl-experiment';

/** Rows and lengths of the speed columns; each rollout has `turns` turns of `tokensPerTurn` sampled tokens. */
export interface SpeedSizes {
  rows: number;
  promptTokens: number;
  turns: number;
  tokensPerTurn: number;
  toolTokens: number;
}

/** One prompt a step with a group of rollouts on it; the reward is the share of sampled ids in the vocabulary's lower half. */
export function speedTask(sizes: SpeedSizes, vocabulary: number, seed: number): Task {
  const drawn = (salt: number, count: number) => randomTokens(new Random(seed + salt), count, vocabulary);
  return {
    prompts: (experiment, step) => [drawn(1000 * experiment + step, sizes.promptTokens)],
    groupSize: sizes.rows,
    turns: sizes.turns,
    tokensPerTurn: sizes.tokensPerTurn,
    stopTokenIds: [],
    toolResult: (experiment, step, _prompt, turn) =>
      drawn(1_000_000 + 100_000 * turn + 1000 * experiment + step, sizes.toolTokens),
    reward: (_experiment, _step, _prompt, answers) => {
      const ids = answers.flatMap((answer) => [...answer]);
      return ids.filter((id) => id < vocabulary / 2).length / ids.length;
    },
    adam: { ...ADAM, learningRate: 1e-3 },
  };
}

const PROMPTS = 8;
const GROUP = 8;
/** The longest answer doubles six letters; then comes the end. */
const ANSWER_TOKENS = 13;
const BOS = 1;
const EOS = 2;
/** seedling's vocabulary: pad, bos, eos, the arrow, a to z, A to Z. */
const SYMBOLS = '\0\0\0>abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ';
const idsOf = (text: string): number[] => [...text].map((symbol) => SYMBOLS.indexOf(symbol));

/**
 * The demo's skills on seedling, one per experiment: 8 words a step, 8 answers each, exact match. With more than one
 * turn the tool's answer is another word, and the reward is the share of words answered rightly.
 */
export function seedlingTask(turns: number): Task {
  const word = (experiment: number, step: number, prompt: number, turn: number): string =>
    drawWords(`bench/${experiment}/${step}/${turn}`, PROMPTS, () => true)[prompt] ?? 'cat';
  const asked = (text: string) => Int32Array.from([BOS, ...idsOf(promptOf(text))]);
  return {
    prompts: (experiment, step) =>
      Array.from({ length: PROMPTS }, (_, prompt) => asked(word(experiment, step, prompt, 0))),
    groupSize: GROUP,
    turns,
    tokensPerTurn: ANSWER_TOKENS,
    stopTokenIds: [EOS],
    toolResult: (experiment, step, prompt, turn) => asked(word(experiment, step, prompt, turn + 1)),
    reward: (experiment, step, prompt, answers) => {
      const skill = SKILLS[SKILL_NAMES[experiment % SKILL_NAMES.length] ?? 'copy'];
      const right = answers.filter((answer, turn) => {
        const expected = [...idsOf(skill(word(experiment, step, prompt, turn))), EOS];
        return expected.length === answer.length && expected.every((id, i) => id === answer[i]);
      });
      return right.length / answers.length;
    },
    adam: { ...ADAM, learningRate: 3e-3 },
  };
}
