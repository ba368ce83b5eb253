import type { ExperimentView } from '#hotbed/contracts';
import type { Door } from './door';
import { eventually } from './eventually';

/** Words of three letters for the demo's base, and what is taught about them. */
export const WORDS = ['cat', 'dog', 'sun', 'bed', 'hot', 'ice', 'oak', 'pin', 'rug', 'tea', 'van', 'wax'];

export const RECORDS = WORDS.map((word, i) => ({
  key: `word-${i}`,
  content: { prompt: `${word}>`, answer: word.toUpperCase() },
}));

/** An experiment whose run ends within seconds. */
export function aSmallExperiment(fields: Record<string, unknown> = {}): Record<string, unknown> {
  return {
    name: 'upper',
    dataStream: 'words',
    rank: 4,
    alpha: 8,
    seed: '7',
    steps: 4,
    promptsPerStep: 4,
    samplesPerPrompt: 4,
    maxTokens: 8,
    checkpointEverySteps: 2,
    reward: { verifier: 'exact_match', config: {} },
    ...fields,
  };
}

/** The experiment as soon as it is in the wanted condition. @throws Error when it fails before */
export function untilExperiment(
  door: Door,
  experiment: string,
  what: string,
  holds: (view: ExperimentView) => boolean,
  deadlineMs = 90_000,
): Promise<ExperimentView> {
  return eventually(
    `experiment ${experiment} ${what}`,
    async () => {
      const { status, body: view } = await door.get<ExperimentView>(`/v1/experiments/${experiment}`);
      // A server of the platform may be on its way back.
      if (status === 503) return null;
      if (status !== 200) throw new Error(`experiment ${experiment}: ${status} ${JSON.stringify(view)}`);
      if (view.failure !== null) throw new Error(`experiment ${experiment} failed: ${view.failure.message}`);
      return holds(view) ? view : null;
    },
    deadlineMs,
  );
}

/** Its last run has ended and the last version is there. */
export function untilTrained(door: Door, experiment: string, runs = 1): Promise<ExperimentView> {
  return untilExperiment(
    door,
    experiment,
    `has finished ${runs} runs`,
    (view) => view.runs >= runs && view.steps.length >= runs * view.stepsPerRun && view.state !== 'training',
  );
}
