import type { ExperimentSummary } from '#hotbed/contracts';
import type { OpenExperiment } from './experiment';
import type { ExperimentRow } from './experiment-rows';

/** Consecutive steps of one kind after which learning counts as stalled. */
const STALL_STEPS = 3;
/** Without anything happening for so long a running step waits for a worker (or a rewarder), not for computation. */
const WAITING_AFTER_MS = 30_000;

/** What a person sees of an experiment in a list. */
export function toSummary(row: ExperimentRow, nowMs: number): ExperimentSummary {
  const { experiment } = row;
  const { created } = experiment;
  return {
    experimentId: created.experimentId,
    name: created.name,
    state: experiment.status,
    adapterId: created.adapterId,
    adapterName: created.adapterName,
    dataStreamId: created.dataStreamId,
    runs: experiment.runs,
    step: experiment.stepsOfLastRun,
    stepsPerRun: created.algorithm.stepsPerRun,
    totalSteps: experiment.totalSteps,
    rewardMean: experiment.lastRewardMean,
    latestVersion: experiment.adapter.newest?.version ?? null,
    stalled: stallReason(experiment, nowMs - row.changedAtMs),
    failure: experiment.failure,
    createdAtMs: row.createdAtMs,
  };
}

function stallReason(experiment: OpenExperiment, quietMs: number): ExperimentSummary['stalled'] {
  if (experiment.failure?.code === 'not_finite') return 'not_finite';
  if (experiment.stepsWithoutValidAnswer >= STALL_STEPS) return 'no_valid_answer';
  if (experiment.stepsWithoutVariance >= STALL_STEPS) return 'groups_without_variance';
  if (experiment.status === 'training' && quietMs >= WAITING_AFTER_MS) return 'waiting_for_worker';
  return null;
}
