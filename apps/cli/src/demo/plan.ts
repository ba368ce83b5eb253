import type { CommandInput } from '#hotbed/contracts';
import { SKILLS, SKILL_NAMES, promptOf, type Skill } from './skills';
import { drawWords, isHeldOut } from './words';

export const DEFAULT_TENANTS = SKILL_NAMES.length;
/** Words of one tenant's stream; a training run goes through them in an order of its own. */
const RECORDS_PER_TENANT = 400;
/** Measured before and after: never in any stream, nor in the base's pre-training. */
const HELD_OUT_WORDS = 128;
const COMMON_WORD = 'hotbed';

export interface PlannedTenant {
  name: string;
  skill: Skill;
  experiment: CommandInput<'orchestrator', 'create-experiment'>;
  records: { key: string; content: { prompt: string; answer: string } }[];
}

export interface DemoPlan {
  tenants: PlannedTenant[];
  heldOutWords: string[];
  commonPrompt: string;
  /** False with other `--steps` than the default: rewards are then reported, not judged. */
  judged: boolean;
}

interface Recipe {
  rank: number;
  alpha: number;
  steps: number;
  learningRate: number;
}

/** From models/README.md: the rate matters more than anything else, and a falling one ends a run calmly. */
const RECIPES: Record<Skill, Recipe> = {
  copy: { rank: 16, alpha: 32, steps: 50, learningRate: 2e-3 },
  reverse: { rank: 16, alpha: 16, steps: 50, learningRate: 3e-3 },
  upper: { rank: 4, alpha: 8, steps: 50, learningRate: 4e-3 },
  sort: { rank: 8, alpha: 16, steps: 50, learningRate: 3e-3 },
  rotate: { rank: 8, alpha: 8, steps: 50, learningRate: 3e-3 },
  next: { rank: 8, alpha: 16, steps: 50, learningRate: 2e-3 },
  double: { rank: 12, alpha: 24, steps: 50, learningRate: 2e-3 },
  title: { rank: 4, alpha: 8, steps: 50, learningRate: 4e-3 },
};

/** Everything the demo will do, as a function of its options: no clock, no chance. */
export function planDemo(options: { tenants: number; steps: number | null }): DemoPlan {
  return {
    tenants: SKILL_NAMES.slice(0, options.tenants).map((skill, i) => planTenant(skill, i, options.steps)),
    heldOutWords: drawWords('hotbed.demo.held-out', HELD_OUT_WORDS, isHeldOut),
    commonPrompt: promptOf(COMMON_WORD),
    judged: options.steps === null,
  };
}

function planTenant(skill: Skill, index: number, steps: number | null): PlannedTenant {
  const recipe = RECIPES[skill];
  const words = drawWords(
    `hotbed.demo.${skill}`,
    RECORDS_PER_TENANT,
    (word) => !isHeldOut(word) && word !== COMMON_WORD,
  );
  return {
    name: `team-${skill}`,
    skill,
    records: words.map((word, i) => ({
      key: `word-${i}`,
      content: { prompt: promptOf(word), answer: SKILLS[skill](word) },
    })),
    experiment: {
      name: skill,
      dataStream: 'words',
      rank: recipe.rank,
      alpha: recipe.alpha,
      seed: String(1000 + index),
      steps: steps ?? recipe.steps,
      promptsPerStep: 8,
      samplesPerPrompt: 8,
      learningRate: recipe.learningRate,
      schedule: { kind: 'linear', finalFraction: 0 },
      maxTokens: 14,
      reward: { verifier: 'exact_match', config: {} },
      trigger: { kind: 'count', records: RECORDS_PER_TENANT },
      checkpointEverySteps: 10,
    },
  };
}
