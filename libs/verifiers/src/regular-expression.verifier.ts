import { createContext, Script } from 'node:vm';
import { z } from 'zod';
import { expectedAnswer } from './expected-answer';
import { VerifierError, defineVerifier } from './verifier';

/** A pattern that needs longer for one group of completions is refused: some patterns take years on a short text. */
const TIME_LIMIT_MS = 1000;

/**
 * 1 where the completion matches, else 0. With `captureEqualsAnswer` the first capture group must also equal the
 * record's answer; then a completion without a match is not valid.
 */
export const regularExpression = defineVerifier({
  name: 'regular_expression',
  config: z
    .strictObject({
      pattern: z.string().min(1).max(4096),
      flags: z
        .string()
        .regex(/^[imsuv]*$/, 'expected flags of i, m, s, u, v')
        .default('u'),
      captureEqualsAnswer: z.boolean().default(false),
      answer: z.string().nullable().default(null),
    })
    .superRefine((config, context) => {
      try {
        new RegExp(config.pattern, config.flags);
      } catch (error) {
        context.addIssue({
          code: 'custom',
          path: ['pattern'],
          message: `no regular expression: ${error instanceof Error ? error.message : String(error)}`,
        });
      }
    }),
  judge: (completions, config) => {
    const captures = matchAll(
      config.pattern,
      config.flags,
      completions.map((completion) => completion.completion),
    );
    return completions.map((completion, i) => {
      const match = captures[i];
      if (!config.captureEqualsAnswer) return { reward: match ? 1 : 0, valid: completion.completion !== '' };
      if (!match) return { reward: 0, valid: false };
      const isRight = match.capture?.trim() === expectedAnswer(completion, config.answer).trim();
      return { reward: isRight ? 1 : 0, valid: true };
    });
  },
});

type Match = { capture: string | null } | null;

const MATCH_ALL = new Script(`
  texts.map((text) => {
    const match = new RegExp(pattern, flags).exec(text);
    return match === null ? null : { capture: match[1] ?? null };
  })`);

/** Runs in a context of its own only for its time limit: a pattern cannot reach anything. */
function matchAll(pattern: string, flags: string, texts: readonly string[]): Match[] {
  try {
    const found: unknown = MATCH_ALL.runInContext(createContext({ pattern, flags, texts }), { timeout: TIME_LIMIT_MS });
    return found as Match[];
  } catch (error) {
    throw new VerifierError('verifier_timeout', `the pattern needs more than ${TIME_LIMIT_MS} ms; simplify it`, {
      cause: error,
    });
  }
}
