import type { ExperimentCreated, EventType, PayloadOf } from '#hotbed/contracts';

/** An event as the fold sees it: of the log, or just decided and about to be appended. */
export type Fact = { [T in EventType]: { type: T; payload: PayloadOf<T> } }[EventType];

/** A window of records that waits for its run. Stream versions, both inclusive. */
export interface Trigger {
  triggerId: string;
  from: string;
  to: string;
  records: number;
}

/** Rewards of one prompt's completions, by sample index. */
export interface GroupRewards {
  requestVersion: string;
  completedVersion: string;
  rewards: number[];
  validAnswers: number;
  sampledTokens: number;
}

/** The rollouts that the current step waits for. Arrays by prompt index; null = not there yet. */
export interface PendingStep {
  requestId: string;
  step: number;
  policyOpIndex: string;
  prompts: { recordId: string | null; subjectIds: string[] }[];
  groups: (GroupRewards | null)[];
}

export interface Run {
  ordinal: number;
  trigger: Trigger;
  stepsCompleted: number;
  pending: PendingStep | null;
}

/** What the adapter's stream says, as far as the experiment must know. */
export interface TrainedAdapter {
  acceptedOpIndex: string;
  acceptedKind: 'created' | 'forward_backward' | 'optim_step' | 'checkpoint';
  /** Newest version, with the policy state that it names. */
  newest: { version: number; opIndex: string; stateDigest: string } | null;
}

export interface OpenExperiment {
  status: 'idle' | 'training' | 'paused' | 'completed' | 'failed' | 'cancelled';
  created: ExperimentCreated;
  /** Whether a first run began. */
  isStarted: boolean;
  /** Triggers in order; the first one is next. */
  queue: Trigger[];
  /** Upper end of the newest window seen: windows of one experiment rise. */
  triggeredTo: string;
  /** Runs begun. */
  runs: number;
  /** The current run; also while paused. */
  run: Run | null;
  totalSteps: number;
  /** Steps of the current or last run. */
  stepsOfLastRun: number;
  lastRewardMean: number | null;
  /** Stream version of the newest completed step's RolloutsRequested. */
  lastRequestVersion: string | null;
  /** Consecutive steps, up to the newest, without variance in any group; without any valid answer. */
  stepsWithoutVariance: number;
  stepsWithoutValidAnswer: number;
  adapter: TrainedAdapter;
  /** Something that ends the experiment and is not yet recorded as its failure. */
  fault: { code: string; message: string } | null;
  failure: { code: string; message: string } | null;
}

export type Experiment = { status: 'absent' } | OpenExperiment;

export const NO_EXPERIMENT: Experiment = { status: 'absent' };

/**
 * The fold of an experiment over its own stream, its rollouts, its adapter's stream and the triggers for it.
 *
 * 1. A fact that comes again changes nothing, however late: its index or id says that it was taken. Pauses and
 *    resumptions have neither; they come from the experiment's own stream alone, each once.
 * 2. What lanes bring (triggers, rewards, versions, failures) may lag behind the other streams: a rebuild that has
 *    folded it already is not harmed.
 * 3. Nothing but facts enters: the same facts give the same experiment after any crash.
 */
export function evolve(experiment: Experiment, fact: Fact): Experiment {
  if (experiment.status === 'absent') {
    return fact.type === 'ExperimentCreated' ? fromCreated(fact.payload) : experiment;
  }
  switch (fact.type) {
    case 'ExperimentStarted':
      return { ...experiment, isStarted: true };
    case 'ExperimentPaused':
      return isEnded(experiment) ? experiment : { ...experiment, status: 'paused' };
    case 'ExperimentResumed':
      return isEnded(experiment)
        ? experiment
        : { ...experiment, status: experiment.run === null ? 'idle' : 'training' };
    case 'ExperimentCompleted':
      return ended(experiment, 'completed');
    case 'ExperimentCancelled':
      return ended(experiment, 'cancelled');
    case 'ExperimentFailed':
      return isEnded(experiment)
        ? experiment
        : {
            ...ended(experiment, 'failed'),
            failure: { code: fact.payload.code, message: fact.payload.message },
          };
    case 'TrainingTriggered':
      return withTrigger(experiment, fact.payload);
    case 'TrainingRunStarted':
      return withRun(experiment, fact.payload);
    case 'RolloutsRequested':
      return withPending(experiment, fact.payload);
    case 'RewardsAssigned':
      return withPendingStep(experiment, fact.payload, (pending) => ({
        ...pending,
        groups: pending.groups.with(fact.payload.promptIndex, groupOf(fact.payload)),
      }));
    case 'RolloutsFailed':
    case 'RewardsFailed':
      return experiment.run?.pending?.requestId === fact.payload.requestId
        ? withFault(experiment, fact.payload.code, fact.payload.message)
        : experiment;
    case 'TrainingStepCompleted':
      return withStepCompleted(experiment, fact.payload);
    case 'TrainingRunCompleted':
      return experiment.run?.ordinal === fact.payload.runOrdinal
        ? { ...experiment, status: experiment.status === 'paused' ? 'paused' : 'idle', run: null }
        : experiment;
    case 'OperationAccepted':
      return withOperation(experiment, fact.payload);
    case 'OperationFailed':
      return withFault(
        experiment,
        fact.payload.code,
        `operation ${fact.payload.opIndex} (${fact.payload.kind}): ${fact.payload.message}`,
      );
    case 'AdapterCheckpointed':
      return withVersion(experiment, fact.payload);
    default:
      return experiment;
  }
}

/** Whether nothing can happen to it any more. */
export function isEnded(experiment: OpenExperiment): boolean {
  return experiment.status === 'completed' || experiment.status === 'failed' || experiment.status === 'cancelled';
}

function fromCreated(created: ExperimentCreated): OpenExperiment {
  return {
    status: 'idle',
    created,
    isStarted: false,
    queue: [],
    triggeredTo: '0',
    runs: 0,
    run: null,
    totalSteps: 0,
    stepsOfLastRun: 0,
    lastRewardMean: null,
    lastRequestVersion: null,
    stepsWithoutVariance: 0,
    stepsWithoutValidAnswer: 0,
    adapter: {
      acceptedOpIndex: '0',
      acceptedKind: 'created',
      newest: null,
    },
    fault: null,
    failure: null,
  };
}

function ended(experiment: OpenExperiment, status: 'completed' | 'failed' | 'cancelled'): OpenExperiment {
  return isEnded(experiment) ? experiment : { ...experiment, status, run: null, queue: [], fault: null };
}

function withTrigger(experiment: OpenExperiment, triggered: PayloadOf<'TrainingTriggered'>): OpenExperiment {
  if (triggered.experimentId !== experiment.created.experimentId) return experiment;
  if (BigInt(triggered.to) <= BigInt(experiment.triggeredTo)) return experiment;
  const { triggerId, from, to, records } = triggered;
  return {
    ...experiment,
    triggeredTo: to,
    queue: isEnded(experiment) ? [] : [...experiment.queue, { triggerId, from, to, records }],
  };
}

function withRun(experiment: OpenExperiment, started: PayloadOf<'TrainingRunStarted'>): OpenExperiment {
  const { from, to } = started.window;
  if (started.runOrdinal < experiment.runs) return experiment;
  return {
    ...experiment,
    status: 'training',
    runs: started.runOrdinal + 1,
    stepsOfLastRun: 0,
    queue: experiment.queue.filter((trigger) => trigger.triggerId !== started.triggerId),
    run: {
      ordinal: started.runOrdinal,
      trigger: { triggerId: started.triggerId, from, to, records: started.records },
      stepsCompleted: 0,
      pending: null,
    },
  };
}

function withPending(experiment: OpenExperiment, requested: PayloadOf<'RolloutsRequested'>): OpenExperiment {
  const { run } = experiment;
  if (run === null || requested.experimentId !== experiment.created.experimentId) return experiment;
  const isTaken = (requested.step ?? 0) < run.stepsCompleted || run.pending?.requestId === requested.requestId;
  if (requested.runOrdinal !== run.ordinal || isTaken) return experiment;
  const pending: PendingStep = {
    requestId: requested.requestId,
    step: requested.step ?? 0,
    policyOpIndex: requested.opIndex ?? '0',
    prompts: requested.prompts.map((prompt) => ({
      recordId: prompt.record?.recordId ?? null,
      subjectIds: prompt.subjectIds,
    })),
    groups: requested.prompts.map(() => null),
  };
  return { ...experiment, run: { ...run, pending } };
}

/** Facts about a request that is not the current one (cancelled, completed) change nothing. */
function withPendingStep(
  experiment: OpenExperiment,
  about: { requestId: string; promptIndex: number },
  change: (pending: PendingStep) => PendingStep,
): OpenExperiment {
  const pending = experiment.run?.pending;
  if (experiment.run === null || !pending || pending.requestId !== about.requestId) return experiment;
  if (about.promptIndex >= pending.prompts.length) return experiment;
  return { ...experiment, run: { ...experiment.run, pending: change(pending) } };
}

/** The first fault stands; one that comes after the end changes nothing. */
function withFault(experiment: OpenExperiment, code: string, message: string): OpenExperiment {
  return isEnded(experiment) || experiment.fault !== null ? experiment : { ...experiment, fault: { code, message } };
}

function groupOf(assigned: PayloadOf<'RewardsAssigned'>): GroupRewards {
  const ordered = [...assigned.rewards].sort((a, b) => a.sampleIndex - b.sampleIndex);
  return {
    requestVersion: assigned.requestVersion,
    completedVersion: assigned.completedVersion,
    rewards: ordered.map((reward) => reward.reward),
    validAnswers: ordered.filter((reward) => reward.valid).length,
    sampledTokens: assigned.sampledTokens ?? 0,
  };
}

function withStepCompleted(experiment: OpenExperiment, step: PayloadOf<'TrainingStepCompleted'>): OpenExperiment {
  const { run } = experiment;
  if (run?.ordinal !== step.runOrdinal || step.step < run.stepsCompleted) return experiment;
  return {
    ...experiment,
    totalSteps: experiment.totalSteps + 1,
    stepsOfLastRun: step.step + 1,
    lastRewardMean: step.rewardMean,
    lastRequestVersion: run.pending?.groups[0]?.requestVersion ?? experiment.lastRequestVersion,
    stepsWithoutVariance: step.groupsWithVariance === 0 ? experiment.stepsWithoutVariance + 1 : 0,
    stepsWithoutValidAnswer: step.validAnswers === 0 ? experiment.stepsWithoutValidAnswer + 1 : 0,
    run: { ...run, stepsCompleted: step.step + 1, pending: null },
  };
}

function withOperation(experiment: OpenExperiment, accepted: PayloadOf<'OperationAccepted'>): OpenExperiment {
  const { opIndex, operation } = accepted;
  if (BigInt(opIndex) <= BigInt(experiment.adapter.acceptedOpIndex)) return experiment;
  return {
    ...experiment,
    adapter: { ...experiment.adapter, acceptedOpIndex: opIndex, acceptedKind: operation.kind },
  };
}

function withVersion(experiment: OpenExperiment, checkpointed: PayloadOf<'AdapterCheckpointed'>): OpenExperiment {
  const { version, opIndex, stateDigest } = checkpointed;
  if (version <= (experiment.adapter.newest?.version ?? 0)) return experiment;
  return { ...experiment, adapter: { ...experiment.adapter, newest: { version, opIndex, stateDigest } } };
}
