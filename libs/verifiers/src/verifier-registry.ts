import { InvalidInput, parseInput, type RewardPayload } from '#hotbed/contracts';
import { z } from 'zod';
import { exactMatch } from './exact-match.verifier';
import { numericAnswer } from './numeric-answer.verifier';
import { regularExpression } from './regular-expression.verifier';
import type { Verifier } from './verifier';
import { FILE_VERIFIER, isVerifierFile, liesIn, ownVerifierNames, ownVerifierPath } from './own-verifiers';

/** Every verifier that comes with Hotbed. A new one: one file beside these, one entry here. */
export const BUILT_IN_VERIFIERS: readonly Verifier[] = [exactMatch, numericAnswer, regularExpression];

/** `file` takes a path and hands the rest of its configuration to the verifier in that file. */
const fileConfig = z.looseObject({ path: z.string().min(1) });

export type FoundVerifier =
  | { kind: 'built_in'; verifier: Verifier; config: unknown }
  /** `config` without `path`. */
  | { kind: 'own'; path: string; config: Record<string, unknown> };

/**
 * The verifier that a reward names, with its configuration checked and its defaults filled in.
 * @param verifierFolder own verifiers by name (`<name>.mjs`); files given by path must lie in it, too: a tenant must not run
 *   whatever else is on the machine. null = no own verifiers
 * @throws InvalidInput naming `reward.verifier` or the field of `reward.config`
 */
export async function findVerifier(reward: RewardPayload, verifierFolder: string | null): Promise<FoundVerifier> {
  const verifier = BUILT_IN_VERIFIERS.find((known) => known.name === reward.verifier);
  if (verifier !== undefined) {
    return { kind: 'built_in', verifier, config: parseInput(verifier.config, reward.config, 'reward.config') };
  }
  if (reward.verifier === FILE_VERIFIER) {
    const { path, ...config } = parseInput(fileConfig, reward.config, 'reward.config');
    if (verifierFolder === null) {
      throw new InvalidInput([
        {
          path: 'reward.verifier',
          message: 'own verifiers are off; the operator allows a folder with HOTBED_VERIFIER_DIR',
        },
      ]);
    }
    if (!(await isVerifierFile(path))) {
      throw new InvalidInput([
        {
          path: 'reward.config.path',
          message: `no verifier file "${path}"; expected the absolute path of an .mjs file`,
        },
      ]);
    }
    if (!(await liesIn(verifierFolder, path))) {
      throw new InvalidInput([
        { path: 'reward.config.path', message: `"${path}" is not in the folder of verifiers, HOTBED_VERIFIER_DIR` },
      ]);
    }
    return { kind: 'own', path, config };
  }
  const path = ownVerifierPath(verifierFolder, reward.verifier);
  if (path !== null && (await isVerifierFile(path))) return { kind: 'own', path, config: reward.config };
  const names = [
    ...BUILT_IN_VERIFIERS.map((known) => known.name),
    ...(verifierFolder === null ? [] : [FILE_VERIFIER, ...(await ownVerifierNames(verifierFolder))]),
  ];
  throw new InvalidInput([
    { path: 'reward.verifier', message: `no verifier "${reward.verifier}"; known: ${names.join(', ')}` },
  ]);
}
