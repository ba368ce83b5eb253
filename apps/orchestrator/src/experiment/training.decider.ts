import {
  derivedId,
  float32Tensor,
  int32Tensor,
  rolloutSeed,
  type Operation,
  type RolloutDatum,
  rolloutId,
  streamId,
} from '#hotbed/contracts';
import { decideAcceptOperations, type AcceptingAdapter } from '#hotbed/adapters';
import { groupAdvantages, hasVariance, meanOf } from '../grpo/advantages';
import { learningRateAt } from '../grpo/learning-rate';
import {
  isEnded,
  type Fact,
  type GroupRewards,
  type OpenExperiment,
  type PendingStep,
  type Run,
  type Trigger,
} from './experiment';

/** What an experiment must do now. null = wait for the next fact. */
export type Due =
  | { kind: 'fail'; code: string; message: string }
  | { kind: 'start_run'; trigger: Trigger }
  | { kind: 'request_rollouts'; run: Run }
  | { kind: 'complete_step'; run: Run; pending: PendingStep; groups: GroupRewards[] }
  | { kind: 'complete_run'; run: Run; stateDigest: string };

/** Which records a decision needs: prompts of `step`. */
export interface BatchNeed {
  window: { dataStreamId: string; from: string; to: string };
  runOrdinal: number;
  step: number;
}

/** One prompt of a step, by prompt index. */
export interface BatchPrompt {
  recordId: string;
  /** Stream version of the record in the data stream. */
  streamVersion: string;
  subjectIds: string[];
  tokens: Int32Array;
}

export interface Batch {
  /** Records of the window that the model can take; their order is that of the data stream. */
  usableRecords: number;
  prompts: BatchPrompt[];
}

/**
 * The next thing to do, from the state alone. Level-triggered: asked after every fact, and again after every decision,
 * so that a crash between two facts loses nothing and a repeated fact adds nothing.
 */
export function whatIsDue(experiment: OpenExperiment): Due | null {
  if (isEnded(experiment)) return null;
  if (experiment.fault !== null) return { kind: 'fail', ...experiment.fault };
  const { run } = experiment;
  if (run === null) {
    const [trigger] = experiment.queue;
    return experiment.status === 'idle' && trigger !== undefined ? { kind: 'start_run', trigger } : null;
  }
  if (run.pending !== null) {
    const groups = run.pending.groups.filter((group) => group !== null);
    return groups.length === run.pending.groups.length
      ? { kind: 'complete_step', run, pending: run.pending, groups }
      : null;
  }
  if (run.stepsCompleted < experiment.created.algorithm.stepsPerRun) {
    return experiment.status === 'training' ? { kind: 'request_rollouts', run } : null;
  }
  // A run ends with a checkpoint: its version says that everything before it was applied, and what came out.
  const { newest, acceptedOpIndex } = experiment.adapter;
  return newest?.opIndex === acceptedOpIndex ? { kind: 'complete_run', run, stateDigest: newest.stateDigest } : null;
}

/** The records that `decide` needs for what is due; null where it needs none. */
export function batchNeed(experiment: OpenExperiment, due: Due): BatchNeed | null {
  const { dataStreamId, algorithm } = experiment.created;
  const need = (trigger: Trigger, runOrdinal: number, step: number): BatchNeed => ({
    window: { dataStreamId, from: trigger.from, to: trigger.to },
    runOrdinal,
    step,
  });
  switch (due.kind) {
    case 'start_run':
      return need(due.trigger, experiment.runs, 0);
    case 'request_rollouts':
      return need(due.run.trigger, due.run.ordinal, due.run.stepsCompleted);
    case 'complete_step': {
      const next = due.pending.step + 1;
      const goesOn = next < algorithm.stepsPerRun && experiment.status === 'training';
      return goesOn ? need(due.run.trigger, due.run.ordinal, next) : null;
    }
    case 'fail':
    case 'complete_run':
      return null;
  }
}

/**
 * The facts that do what is due: at least one, so that asking again does not find the same thing due for ever.
 * @param batch of `batchNeed`, null where that is null
 */
export function decide(experiment: OpenExperiment, due: Due, batch: Batch | null): Fact[] {
  const { experimentId } = experiment.created;
  switch (due.kind) {
    case 'fail':
      return [{ type: 'ExperimentFailed', payload: { experimentId, code: due.code, message: due.message } }];
    case 'start_run':
      return startRun(experiment, due.trigger, needed(batch, due));
    case 'request_rollouts': {
      const { ordinal, stepsCompleted } = due.run;
      const { acceptedOpIndex } = experiment.adapter;
      return [requestRollouts(experiment, ordinal, stepsCompleted, acceptedOpIndex, needed(batch, due))];
    }
    case 'complete_step':
      return completeStep(experiment, due, batch);
    case 'complete_run':
      return [
        {
          type: 'TrainingRunCompleted',
          payload: {
            experimentId,
            runOrdinal: due.run.ordinal,
            steps: due.run.stepsCompleted,
            finalOpIndex: experiment.adapter.acceptedOpIndex,
            stateDigest: due.stateDigest,
          },
        },
      ];
  }
}

function needed(batch: Batch | null, due: Due): Batch {
  if (batch === null) throw new Error(`${due.kind} needs the records that batchNeed names, and got none`);
  return batch;
}

function startRun(experiment: OpenExperiment, trigger: Trigger, batch: Batch): Fact[] {
  const { experimentId, dataStreamId } = experiment.created;
  if (batch.usableRecords === 0) {
    return [
      {
        type: 'ExperimentFailed',
        payload: {
          experimentId,
          code: 'no_usable_record',
          message: `no record in versions ${trigger.from}..${trigger.to} of data stream ${dataStreamId} leaves room for an answer in the model's context; send shorter prompts`,
        },
      },
    ];
  }
  const started: Fact[] = experiment.isStarted ? [] : [{ type: 'ExperimentStarted', payload: { experimentId } }];
  return [
    ...started,
    {
      type: 'TrainingRunStarted',
      payload: {
        experimentId,
        runOrdinal: experiment.runs,
        triggerId: trigger.triggerId,
        window: { dataStreamId, from: trigger.from, to: trigger.to },
        records: batch.usableRecords,
        fromOpIndex: experiment.adapter.acceptedOpIndex,
      },
    },
    requestRollouts(experiment, experiment.runs, 0, experiment.adapter.acceptedOpIndex, batch),
  ];
}

/** Request ids derive from (experiment, run, step): asking twice is asking once. */
function requestRollouts(
  experiment: OpenExperiment,
  runOrdinal: number,
  step: number,
  policyOpIndex: string,
  batch: Batch,
): Fact {
  const { experimentId, adapterId, dataStreamId, baseDigest, numericsId, algorithm, reward, seed } = experiment.created;
  return {
    type: 'RolloutsRequested',
    payload: {
      requestId: derivedId(experimentId, `run/${runOrdinal}/step/${step}`),
      purpose: 'training',
      experimentId,
      runOrdinal,
      step,
      adapterId,
      opIndex: policyOpIndex,
      baseDigest,
      numericsId,
      prompts: batch.prompts.map((prompt, promptIndex) => ({
        promptIndex,
        record: { recordId: prompt.recordId, dataStreamId, streamVersion: prompt.streamVersion },
        subjectIds: prompt.subjectIds,
        tokens: int32Tensor(prompt.tokens),
        seeds: Array.from({ length: algorithm.samplesPerPrompt }, (_, sampleIndex) =>
          rolloutSeed(seed, runOrdinal, step, promptIndex, sampleIndex),
        ),
      })),
      sampling: algorithm.sampling,
      reward,
    },
  };
}

function completeStep(
  experiment: OpenExperiment,
  { run, pending, groups }: Extract<Due, { kind: 'complete_step' }>,
  batch: Batch | null,
): Fact[] {
  const { experimentId, adapterId, algorithm, checkpointEverySteps } = experiment.created;
  const rollouts = groups.reduce((sum, group) => sum + group.rewards.length, 0);
  const validAnswers = groups.reduce((sum, group) => sum + group.validAnswers, 0);
  const datums = groups.flatMap((group, promptIndex) => datumOf(experiment, pending, group, promptIndex, rollouts));
  const learningRate = learningRateAt(algorithm, pending.step);

  const operations: Operation[] = [];
  if (datums.length > 0) {
    operations.push(
      { kind: 'forward_backward', loss: algorithm.loss, datums },
      { kind: 'optim_step', adam: { ...algorithm.adam, learningRate } },
    );
  }
  const steps = pending.step + 1;
  const isCheckpointDue = steps % checkpointEverySteps === 0 || steps === algorithm.stepsPerRun;
  // A skipped step may leave nothing new to save: a second version of the same state would say nothing.
  const isSaved = operations.length === 0 && experiment.adapter.acceptedKind === 'checkpoint';
  if (isCheckpointDue && !isSaved) {
    operations.push({ kind: 'checkpoint', label: `run ${run.ordinal}, step ${steps}` });
  }
  const accepted =
    operations.length === 0
      ? []
      : decideAcceptOperations(acceptingAdapter(experiment), adapterId, operations, {
          kind: 'experiment',
          experimentId,
          runOrdinal: run.ordinal,
          step: pending.step,
        }).payloads;
  const acceptedOpIndex = accepted.at(-1)?.opIndex ?? experiment.adapter.acceptedOpIndex;

  return [
    {
      type: 'TrainingStepCompleted',
      payload: {
        experimentId,
        runOrdinal: run.ordinal,
        step: pending.step,
        requestId: pending.requestId,
        policyOpIndex: pending.policyOpIndex,
        acceptedOpIndex,
        rollouts,
        rewardMean: meanOf(groups.flatMap((group) => group.rewards)),
        groups: groups.length,
        groupsWithVariance: groups.filter((group) => hasVariance(group.rewards)).length,
        validAnswers,
        sampledTokens: groups.reduce((sum, group) => sum + group.sampledTokens, 0),
        learningRate,
        skipped: datums.length > 0 ? null : validAnswers === 0 ? 'no_valid_answer' : 'no_variance',
      },
    },
    ...accepted.map((payload): Fact => ({ type: 'OperationAccepted', payload })),
    // The worker samples from acceptedOpIndex as soon as it has applied it: nobody waits for OperationApplied in between.
    ...(batch === null ? [] : [requestRollouts(experiment, run.ordinal, steps, acceptedOpIndex, batch)]),
  ];
}

/** A group whose advantages are all 0 adds exactly nothing to a gradient: it is left out. */
function datumOf(
  experiment: OpenExperiment,
  pending: PendingStep,
  group: GroupRewards,
  promptIndex: number,
  rollouts: number,
): RolloutDatum[] {
  const advantages = groupAdvantages(group.rewards, rollouts);
  if (advantages.every((advantage) => advantage === 0)) return [];
  const prompt = pending.prompts[promptIndex];
  return [
    {
      source: 'rollouts',
      streamId: streamId('rollouts', experiment.created.experimentId),
      requestVersion: group.requestVersion,
      completedVersion: group.completedVersion,
      promptIndex,
      recordId: prompt?.recordId ?? null,
      subjectIds: prompt?.subjectIds ?? [],
      branches: group.rewards.map((_, sampleIndex) => ({
        rolloutId: rolloutId(pending.requestId, promptIndex, sampleIndex),
        sampleIndex,
      })),
      advantages: float32Tensor(advantages),
    },
  ];
}

/** The experiment's adapter as the shared decider wants it. */
export function acceptingAdapter(experiment: OpenExperiment): AcceptingAdapter {
  const { numericsId, experimentId } = experiment.created;
  return { status: 'open', numericsId, experimentId, nextOpIndex: BigInt(experiment.adapter.acceptedOpIndex) + 1n };
}
