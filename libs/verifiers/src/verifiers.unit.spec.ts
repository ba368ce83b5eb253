import { exactMatch } from './exact-match.verifier';
import { numericAnswer } from './numeric-answer.verifier';
import { regularExpression } from './regular-expression.verifier';
import { findVerifier } from './verifier-registry';
import type { Completion, Verdict, Verifier } from './verifier';

const said = (completion: string, answer: string | null = 'tac'): Completion => ({
  prompt: 'cat>',
  completion,
  answer,
  metadata: { unit: 'm' },
});

/** One verdict, with the configuration checked as the platform does. */
function verdict(verifier: Verifier, config: object, completion: Completion): Verdict {
  const [first] = verifier.judge([completion], verifier.config.parse(config));
  return first!;
}

describe('exact match', () => {
  it.each([
    ['tac', {}, 1],
    [' tac\n', {}, 1],
    [' tac', { trim: false }, 0],
    ['TAC', {}, 0],
    ['TAC', { caseSensitive: false }, 1],
    ['cat', {}, 0],
    ['cat>-m', { answer: '{prompt}-{metadata.unit}' }, 1],
  ])('%j with %j is %i', (completion, config, reward) => {
    expect(verdict(exactMatch, config, said(completion))).toEqual({ reward, valid: true });
  });

  it('holds an empty completion for no answer', () => {
    expect(verdict(exactMatch, {}, said(' '))).toEqual({ reward: 0, valid: false });
  });

  it('cannot judge without an answer', () => {
    expect(() => verdict(exactMatch, {}, said('tac', null))).toThrow('the record has no answer');
    expect(() => verdict(exactMatch, { answer: '{metadata.nothing}' }, said('tac'))).toThrow('no metadata "nothing"');
  });
});

describe('numeric answer', () => {
  it.each([
    ['the result is 42', '42', {}, { reward: 1, valid: true }],
    ['6 * 7 = 42.0', '42', {}, { reward: 1, valid: true }],
    ['42, no: 41', '42', {}, { reward: 0, valid: true }],
    ['-1,234.5', '-1234.5', {}, { reward: 1, valid: true }],
    ['4.2e1', '42', {}, { reward: 1, valid: true }],
    ['41.9', '42', { absoluteTolerance: 0.2 }, { reward: 1, valid: true }],
    ['99', '100', { relativeTolerance: 0.01 }, { reward: 1, valid: true }],
    ['no idea', '42', {}, { reward: 0, valid: false }],
    ['.', '42', {}, { reward: 0, valid: false }],
  ])('%j for %j with %j', (completion, answer, config, expected) => {
    expect(verdict(numericAnswer, config, said(completion, answer))).toEqual(expected);
  });

  it('needs a number as the answer', () => {
    expect(() => verdict(numericAnswer, {}, said('42', 'many'))).toThrow('holds no number');
  });
});

describe('regular expression', () => {
  it.each([
    ['tac', { pattern: '^[a-z]+$' }, { reward: 1, valid: true }],
    ['TAC', { pattern: '^[a-z]+$' }, { reward: 0, valid: true }],
    ['TAC', { pattern: '^[a-z]+$', flags: 'iu' }, { reward: 1, valid: true }],
    ['answer: tac', { pattern: 'answer: (\\w+)', captureEqualsAnswer: true }, { reward: 1, valid: true }],
    ['answer: cat', { pattern: 'answer: (\\w+)', captureEqualsAnswer: true }, { reward: 0, valid: true }],
    ['tac', { pattern: 'answer: (\\w+)', captureEqualsAnswer: true }, { reward: 0, valid: false }],
  ])('%j with %j', (completion, config, expected) => {
    expect(verdict(regularExpression, config, said(completion))).toEqual(expected);
  });

  it('gives up on a pattern that never ends', () => {
    expect(() => verdict(regularExpression, { pattern: '^(a+)+$' }, said(`${'a'.repeat(64)}b`))).toThrow(
      'the pattern needs more than 1000 ms',
    );
  });
});

describe('a reward that is named', () => {
  it('gets defaults filled in', async () => {
    expect(await findVerifier({ verifier: 'exact_match', config: {} }, null)).toMatchObject({
      config: { answer: null, trim: true, caseSensitive: true },
    });
  });

  it.each([
    [{ verifier: 'exact_match', config: { trimm: true } }, 'reward.config'],
    [{ verifier: 'regular_expression', config: { pattern: '[' } }, 'reward.config.pattern'],
    [{ verifier: 'regular_expression', config: { pattern: 'a', flags: 'g' } }, 'reward.config.flags'],
    [{ verifier: 'exact', config: {} }, 'reward.verifier'],
    [{ verifier: '../escape', config: {} }, 'reward.verifier'],
  ])('%j is refused at %s', async (reward, path) => {
    await expect(findVerifier(reward, '/nowhere')).rejects.toMatchObject({ fields: [{ path }] });
  });
});
