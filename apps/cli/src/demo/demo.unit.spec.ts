import { planDemo } from './plan';
import { SKILLS, SKILL_NAMES, promptOf } from './skills';
import { drawWords, isHeldOut } from './words';

describe('the demo skills', () => {
  it('answer one prompt in eight ways', () => {
    const answers = SKILL_NAMES.map((skill) => SKILLS[skill]('cabz'));
    expect(answers).toEqual(['cabz', 'zbac', 'CABZ', 'abcz', 'abzc', 'dbca', 'ccaabbzz', 'Cabz']);
    expect(new Set(answers).size).toBe(8);
  });
});

describe('the demo words', () => {
  it('are a function of the seed, all different, 3 to 6 different letters', () => {
    const words = drawWords('s', 500, () => true);
    expect(words).toEqual(drawWords('s', 500, () => true));
    expect(new Set(words).size).toBe(500);
    for (const word of words) {
      expect(word).toMatch(/^[a-z]{3,6}$/);
      expect(new Set(word).size).toBe(word.length);
    }
  });

  it('are held out by the sum of their letters, as in pre-training', () => {
    expect(isHeldOut('abh')).toBe(true);
    expect(isHeldOut('abi')).toBe(false);
    expect(drawWords('s', 100, isHeldOut).every(isHeldOut)).toBe(true);
  });
});

describe('the demo plan', () => {
  const plan = planDemo({ tenants: 8, steps: null });

  it('gives every tenant other ranks or alphas, another seed and another skill', () => {
    expect(plan.tenants.map((t) => t.skill)).toEqual(SKILL_NAMES);
    expect(new Set(plan.tenants.map((t) => t.experiment.seed)).size).toBe(8);
    expect(new Set(plan.tenants.map((t) => `${t.experiment.rank}/${t.experiment.alpha}`)).size).toBeGreaterThan(4);
  });

  it('keeps the held-out words out of every stream', () => {
    const heldOut = new Set(plan.heldOutWords.map(promptOf));
    expect(heldOut.size).toBeGreaterThanOrEqual(64);
    for (const tenant of plan.tenants) expect(tenant.records.some((r) => heldOut.has(r.content.prompt))).toBe(false);
  });

  it('keeps fewer tenants as they are among eight', () => {
    expect(planDemo({ tenants: 2, steps: null }).tenants).toEqual(plan.tenants.slice(0, 2));
  });
});
