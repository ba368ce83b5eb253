import { createHash } from 'node:crypto';
import { InvalidInput, canonicalJson, type RewardPayload } from '#hotbed/contracts';
import { VerifierError, findVerifier, type Completion, type Verdict } from '#hotbed/verifiers';
import { OwnVerifierThread, TIME_LIMIT_MS, fileDigest } from './own-verifier-thread';

export interface Judgement {
  verdicts: Verdict[];
  /** SHA-256 of the canonical {verifier, config, file}: which settings, and which file's content, gave the rewards. */
  configDigest: string;
}

/** Judges completions by the verifier that a reward names. */
export class Judge {
  private readonly threads = new Map<string, OwnVerifierThread>();

  constructor(
    private readonly verifierFolder: string | null,
    private readonly timeLimitMs = TIME_LIMIT_MS,
  ) {}

  /** @throws VerifierError whose code says why there are no rewards */
  async judge(reward: RewardPayload, completions: readonly Completion[]): Promise<Judgement> {
    const found = await findVerifier(reward, this.verifierFolder).catch((error: unknown) => {
      if (error instanceof InvalidInput)
        throw new VerifierError('verifier_not_usable', error.message, { cause: error });
      throw error;
    });
    if (found.kind === 'built_in') {
      const verdicts = found.verifier.judge(completions, found.config);
      return { verdicts: checked(verdicts, completions), configDigest: digestOf(reward, null) };
    }
    const thread = await this.threadOf(found.path);
    const verdicts = await thread.judge(completions, found.config);
    return { verdicts: checked(verdicts, completions), configDigest: digestOf(reward, thread.digest) };
  }

  async close(): Promise<void> {
    await Promise.all([...this.threads.values()].map((thread) => thread.close()));
    this.threads.clear();
  }

  /** The file as it is now: an edited file gets a new thread, and its rewards another digest. */
  private async threadOf(path: string): Promise<OwnVerifierThread> {
    const known = this.threads.get(path);
    if (known !== undefined && known.digest === (await fileDigest(path))) return known;
    await known?.close();
    const thread = await OwnVerifierThread.open(path, this.timeLimitMs);
    this.threads.set(path, thread);
    return thread;
  }
}

function checked(verdicts: Verdict[], completions: readonly Completion[]): Verdict[] {
  if (verdicts.length !== completions.length) {
    throw new VerifierError('verifier_failed', `expected ${completions.length} verdicts, got ${verdicts.length}`);
  }
  if (!verdicts.every((verdict) => Number.isFinite(verdict.reward))) {
    throw new VerifierError('reward_not_finite', 'the verifier gave a reward that is no finite number');
  }
  return verdicts;
}

function digestOf(reward: RewardPayload, file: string | null): string {
  return createHash('sha256')
    .update(canonicalJson({ verifier: reward.verifier, config: reward.config, file }))
    .digest('hex');
}
