import {
  streamId,
  toInt32Array,
  type EventStore,
  type ExperimentView,
  type PayloadOf,
  type StoredEvent,
  type Transactions,
} from '#hotbed/contracts';
import type { Bases } from '#hotbed/models';
import type { OpenExperiment } from './experiment';
import { experimentRows, type ExperimentRow } from './experiment-rows';
import type { ExperimentProcess } from './experiment-process';
import { toSummary } from './experiment-summary';
import { experimentIdOf, noExperiment } from './find-experiment';

/** Newest steps shown; the log has them all. */
const SHOWN_STEPS = 5000;
/** Prompts of the newest complete step shown as examples, with two completions each. */
const SHOWN_PROMPTS = 4;
const SHOWN_COMPLETIONS = 2;

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
      ...toSummary(row, this.now()),
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
      const of = <T extends 'RolloutsCompleted' | 'RewardsAssigned'>(type: T) =>
        events.find(
          (event): event is Extract<typeof event, StoredEvent<T>> =>
            event.type === type &&
            (event.payload as PayloadOf<T>).requestId === requested.payload.requestId &&
            (event.payload as PayloadOf<T>).promptIndex === prompt.promptIndex,
        );
      const completed = of('RolloutsCompleted')?.payload as PayloadOf<'RolloutsCompleted'> | undefined;
      const assigned = of('RewardsAssigned')?.payload as PayloadOf<'RewardsAssigned'> | undefined;
      if (completed === undefined || assigned === undefined) continue;
      const answer = await this.answerOf(prompt.record);
      for (const rollout of completed.rollouts.slice(0, SHOWN_COMPLETIONS)) {
        const reward = assigned.rewards.find((given) => given.rolloutId === rollout.rolloutId);
        if (reward === undefined) continue;
        examples.push({
          rolloutId: rollout.rolloutId,
          step: requested.payload.step ?? 0,
          prompt: tokenizer.decode(toInt32Array(prompt.tokens)),
          completion: tokenizer.decode(toInt32Array(rollout.tokens)),
          answer,
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
