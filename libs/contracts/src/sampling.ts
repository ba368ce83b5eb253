import { z } from 'zod';

export const MOST_STOP_STRINGS = 8;
/** Characters (UTF-16 units). */
export const LONGEST_STOP_STRING = 128;

const stopStringSchema = z
  .string()
  .min(1, 'expected at least one character')
  .max(LONGEST_STOP_STRING)
  .refine(
    (text) => !/[\uFFFD\p{Surrogate}]/u.test(text),
    'holds U+FFFD or half a character, which no text of a model has',
  );

export const samplingSchema = z.object({
  /** 0 = argmax. Nothing between: logits divided by less than a thousandth leave fp32. */
  temperature: z
    .number()
    .min(0)
    .max(100)
    .refine((t) => t === 0 || t >= 1e-3, 'expected 0 or at least 0.001'),
  /** 0 = off. */
  topK: z.number().int().nonnegative().max(1_000_000),
  /** 1 = off. */
  topP: z.number().positive().max(1),
  maxTokens: z.number().int().positive().max(1_000_000),
  /** Generation ends after one of these; it is part of the tokens. */
  stopTokenIds: z.array(z.number().int().nonnegative()),
  /**
   * Generation ends with the token that completes one of these in the completion's text. The tokens are kept up to and
   * including it; as text the completion ends before the stop string.
   */
  stopStrings: z.array(stopStringSchema).max(MOST_STOP_STRINGS).optional(),
});
export type SamplingPayload = z.infer<typeof samplingSchema>;
