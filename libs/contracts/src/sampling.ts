import { z } from 'zod';

export const samplingSchema = z.object({
  /** 0 = argmax. */
  temperature: z.number().min(0).max(100),
  /** 0 = off. */
  topK: z.number().int().nonnegative(),
  /** 1 = off. */
  topP: z.number().positive().max(1),
  maxTokens: z.number().int().positive(),
  /** Generation ends after one of these; it is part of the tokens. */
  stopTokenIds: z.array(z.number().int().nonnegative()),
});
export type SamplingPayload = z.infer<typeof samplingSchema>;
