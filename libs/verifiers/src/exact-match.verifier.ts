import { z } from 'zod';
import { expectedAnswer } from './expected-answer';
import { defineVerifier } from './verifier';

/** 1 where the completion equals the record's answer (or the configured one), else 0. */
export const exactMatch = defineVerifier({
  name: 'exact_match',
  config: z.strictObject({
    /** Template of the expected answer; null = the record's answer. */
    answer: z.string().nullable().default(null),
    /** Ignore white space at both ends. */
    trim: z.boolean().default(true),
    caseSensitive: z.boolean().default(true),
  }),
  judge: (completions, config) =>
    completions.map((completion) => {
      const plain = (text: string): string => {
        const trimmed = config.trim ? text.trim() : text;
        return config.caseSensitive ? trimmed : trimmed.toLowerCase();
      };
      const given = plain(completion.completion);
      return { reward: given === plain(expectedAnswer(completion, config.answer)) ? 1 : 0, valid: given !== '' };
    }),
});
