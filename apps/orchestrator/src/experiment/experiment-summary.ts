import type { ExperimentSummary } from '#hotbed/contracts';
import { baseIdentity, type Bases } from '#hotbed/models';
import type { OpenExperiment } from './experiment';
import type { ExperimentRow } from './experiment-rows';

/** Consecutive steps of one kind after which learning counts as stalled. */
const STALL_STEPS = 3;
/** What verifiers give for a right answer: groups that all have it do not vary because nothing is left to learn. */
const BEST_REWARD = 1;
/** Without anything happening for so long a running step waits for a worker (or a rewarder), not for computation. */
const WAITING_AFTER_MS = 30_000;

/** Identities of the bases that live workers have loaded. */
export async function liveBases(bases: Bases): Promise<ReadonlySet<string>> {
  return new Set((await bases.loaded()).map(baseIdentity));
}

/** What a person sees of an experiment in a list. @param live of `liveBases` */
export function toSummary(row: ExperimentRow, nowMs: number, live: ReadonlySet<string>): ExperimentSummary {
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
    stalled: stallReason(experiment, nowMs - row.changedAtMs, live),
    failure: experiment.failure,
    createdAtMs: row.createdAtMs,
  };
}

function stallReason(
  experiment: OpenExperiment,
  quietMs: number,
  live: ReadonlySet<string>,
): ExperimentSummary['stalled'] {
  if (experiment.failure?.code === 'not_finite') return 'not_finite';
  if (experiment.stepsWithoutValidAnswer >= STALL_STEPS) return 'no_valid_answer';
  const isSolved = (experiment.lastRewardMean ?? 0) >= BEST_REWARD;
  if (experiment.stepsWithoutVariance >= STALL_STEPS && !isSolved) return 'groups_without_variance';
  const hasWorker = live.has(baseIdentity(experiment.created)) && quietMs < WAITING_AFTER_MS;
  if (experiment.status === 'training' && !hasWorker) return 'waiting_for_worker';
  return null;
}
