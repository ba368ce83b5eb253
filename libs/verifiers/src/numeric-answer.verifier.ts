import { z } from 'zod';
import { expectedAnswer } from './expected-answer';
import { VerifierError, defineVerifier } from './verifier';

/** A decimal number, thousands separated by commas or not, with an exponent or not. */
const NUMBER = /[-+]?(?:\d{1,3}(?:,\d{3})+|\d+)?(?:\.\d+)?(?:[eE][-+]?\d+)?/g;

/** 1 where the last number of the completion is the answer's number, within the tolerance, else 0. */
export const numericAnswer = defineVerifier({
  name: 'numeric_answer',
  config: z.strictObject({
    answer: z.string().nullable().default(null),
    /** Largest difference that still counts as equal. */
    absoluteTolerance: z.number().nonnegative().default(0),
    /** The same as a share of the answer's magnitude. */
    relativeTolerance: z.number().nonnegative().default(0),
  }),
  judge: (completions, config) =>
    completions.map((completion) => {
      const text = expectedAnswer(completion, config.answer);
      const expected = lastNumber(text);
      if (expected === null) throw new VerifierError('no_answer', `the expected answer "${text}" holds no number`);
      const given = lastNumber(completion.completion);
      if (given === null) return { reward: 0, valid: false };
      const room = Math.max(config.absoluteTolerance, config.relativeTolerance * Math.abs(expected));
      return { reward: Math.abs(given - expected) <= room ? 1 : 0, valid: true };
    }),
});

function lastNumber(text: string): number | null {
  const found = text.match(NUMBER)?.filter((match) => /\d/.test(match)) ?? [];
  const last = found.at(-1);
  const value = last === undefined ? NaN : Number(last.replaceAll(',', ''));
  return Number.isFinite(value) ? value : null;
}
