import type { z } from 'zod';

/** One completion to be judged. Everything is text: verifiers never see token ids. */
export interface Completion {
  prompt: string;
  /** Without special tokens. */
  completion: string;
  /** The record's expected answer; null where it has none. */
  answer: string | null;
  metadata: Readonly<Record<string, string>>;
}

export interface Verdict {
  /** Finite. */
  reward: number;
  /** Whether the completion had the form that the verifier can judge. */
  valid: boolean;
}

/**
 * Turns completions into rewards. Pure: the same completions and configuration give the same verdicts, in any process,
 * at any time. A new verifier is one file with one of these, added to the list in `verifier-registry.ts`.
 */
export interface Verifier<S extends z.ZodType = z.ZodType> {
  name: string;
  /** Checks `reward.config` when an experiment is created, and again before use. */
  config: S;
  /** Verdicts of a prompt's completions, in their order. @throws VerifierError */
  judge(completions: readonly Completion[], config: z.output<S>): Verdict[];
}

/** The completions cannot be judged; `code` says why. Becomes RewardsFailed, which names it to the experiment's owner. */
export class VerifierError extends Error {
  constructor(
    readonly code: string,
    message: string,
    options?: ErrorOptions,
  ) {
    super(message, options);
    this.name = 'VerifierError';
  }
}

/** Lets each verifier file state its configuration once and have `judge` typed by it. */
export function defineVerifier<S extends z.ZodType>(verifier: Verifier<S>): Verifier<S> {
  return verifier;
}
