import { z } from 'zod';

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
});
export type SamplingPayload = z.infer<typeof samplingSchema>;
