import {
  streamId,
  toInt32Array,
  type EventStore,
  type ExperimentView,
  type PayloadOf,
  type Transactions,
} from '#hotbed/contracts';
import { completionText, type Bases } from '#hotbed/models';
import type { OpenExperiment } from './experiment';
import { experimentRows, type ExperimentRow } from './experiment-rows';
import type { ExperimentProcess } from './experiment-process';
import { liveBases, toSummary } from './experiment-summary';
import { experimentIdOf, noExperiment } from './find-experiment';

/** Newest events whose steps are shown: what fits into one reply. The log has them all. */
const SHOWN_STEPS = 1500;
/** Prompts of the newest complete step shown as examples, with two completions each. */
const SHOWN_PROMPTS = 4;
const SHOWN_COMPLETIONS = 2;
const SHOWN_CHARACTERS = 2000;

/** Everything about one experiment: settings, curves, example rollouts, why it stands still if it does. */
export class GetExperimentHandler {
  constructor(
    private readonly store: EventStore,
    private readonly transactions: Transactions,
    private readonly process: ExperimentProcess,
    private readonly bases: Bases,
    private readonly now: () => number = Date.now,
  ) {}

  /** @throws NotFound */
  async get(tenantId: string, ref: string): Promise<ExperimentView> {
    const experimentId = await experimentIdOf(this.store, tenantId, ref);
    const row = await this.transactions.run(
      async (uow) => (await experimentRows.read(uow, experimentId)) ?? (await this.process.lock(uow, experimentId)),
    );
    if (row?.tenantId !== tenantId) throw noExperiment(ref);
    const { created } = row.experiment;
    return {
      ...toSummary(row, this.now(), await liveBases(this.bases)),
      adapterSpec: created.adapterSpec,
      algorithm: created.algorithm,
      reward: created.reward,
      trigger: created.trigger,
      checkpointEverySteps: created.checkpointEverySteps,
      seed: created.seed,
      baseDigest: created.baseDigest,
      steps: await this.steps(row, experimentId),
      examples: await this.examples(row.experiment),
    };
  }

  private async steps(row: ExperimentRow, experimentId: string): Promise<ExperimentView['steps']> {
    const newest = row.streamVersion;
    const after = newest > BigInt(SHOWN_STEPS) ? newest - BigInt(SHOWN_STEPS) : 0n;
    const events = await this.store.readStream(streamId('experiment', experimentId), { after });
    return events.flatMap((event) =>
      event.type === 'TrainingStepCompleted' ? [toStep(event.payload, event.occurredAtMs)] : [],
    );
  }

  private async examples(experiment: OpenExperiment): Promise<ExperimentView['examples']> {
    const { created, lastRequestVersion } = experiment;
    if (lastRequestVersion === null) return [];
    const groups = created.algorithm.promptsPerStep;
    const events = await this.store.readStream(streamId('rollouts', created.experimentId), {
      after: BigInt(lastRequestVersion) - 1n,
      limit: 2 * groups + 1,
    });
    const [requested] = events;
    if (requested?.type !== 'RolloutsRequested') return [];
    const { tokenizer } = await this.bases.textOf(created.baseDigest);
    const examples: ExperimentView['examples'] = [];
    for (const prompt of requested.payload.prompts.slice(0, SHOWN_PROMPTS)) {
      const isOfPrompt = (payload: { requestId: string; promptIndex: number }): boolean =>
        payload.requestId === requested.payload.requestId && payload.promptIndex === prompt.promptIndex;
      let completed: PayloadOf<'RolloutsCompleted'> | undefined;
      let assigned: PayloadOf<'RewardsAssigned'> | undefined;
      for (const event of events) {
        if (event.type === 'RolloutsCompleted' && isOfPrompt(event.payload)) completed = event.payload;
        if (event.type === 'RewardsAssigned' && isOfPrompt(event.payload)) assigned = event.payload;
      }
      if (completed === undefined || assigned === undefined) continue;
      const answer = await this.answerOf(prompt.record);
      for (const rollout of completed.rollouts.slice(0, SHOWN_COMPLETIONS)) {
        const reward = assigned.rewards.find((given) => given.rolloutId === rollout.rolloutId);
        if (reward === undefined) continue;
        examples.push({
          rolloutId: rollout.rolloutId,
          step: requested.payload.step ?? 0,
          prompt: shown(tokenizer.decode(toInt32Array(prompt.tokens))),
          completion: shown(
            completionText(tokenizer, toInt32Array(rollout.tokens), requested.payload.sampling.stopStrings),
          ),
          answer: answer === null ? null : shown(answer),
          reward: reward.reward,
          valid: reward.valid,
        });
      }
    }
    return examples;
  }

  private async answerOf(record: { dataStreamId: string; streamVersion: string } | null): Promise<string | null> {
    if (record === null) return null;
    const version = BigInt(record.streamVersion);
    const [event] = await this.store.readStream(streamId('data-stream', record.dataStreamId), {
      after: version - 1n,
      upTo: version,
    });
    return event?.type === 'RecordReceived' ? event.payload.content.answer : null;
  }
}

/** Examples are for eyes: the end of a long text is enough. */
function shown(text: string): string {
  return text.length <= SHOWN_CHARACTERS ? text : `…${text.slice(-SHOWN_CHARACTERS).toWellFormed()}`;
}

function toStep(step: PayloadOf<'TrainingStepCompleted'>, completedAtMs: number): ExperimentView['steps'][number] {
  const { runOrdinal, rewardMean, groupsWithVariance, groups, validAnswers, rollouts } = step;
  return {
    runOrdinal,
    step: step.step,
    rewardMean,
    groupsWithVariance,
    groups,
    validAnswers,
    rollouts,
    sampledTokens: step.sampledTokens,
    learningRate: step.learningRate,
    skipped: step.skipped,
    completedAtMs,
  };
}
