import { DomainError, type Operation } from '#hotbed/contracts';
import { decideAcceptOperations } from '#hotbed/adapters';
import { isEnded, type Fact, type OpenExperiment } from './experiment';
import { acceptingAdapter } from './training.decider';

/** Finishes the current step, then holds. Asking twice is asking once. @throws DomainError IllegalState */
export function decidePause(experiment: OpenExperiment): Fact[] {
  assertNotEnded(experiment, 'paused');
  if (experiment.status === 'paused') return [];
  const { experimentId } = experiment.created;
  return [{ type: 'ExperimentPaused', payload: { experimentId, reason: 'requested' } }];
}

/** Goes on where pausing held. @throws DomainError IllegalState */
export function decideResume(experiment: OpenExperiment): Fact[] {
  assertNotEnded(experiment, 'resumed');
  if (experiment.status !== 'paused') return [];
  return [{ type: 'ExperimentResumed', payload: { experimentId: experiment.created.experimentId } }];
}

/**
 * Ends the experiment now; rollouts under way are ignored. What was learned since the last version is saved as one.
 * @throws DomainError IllegalState
 */
export function decideCancel(experiment: OpenExperiment): Fact[] {
  if (experiment.status === 'cancelled') return [];
  assertNotEnded(experiment, 'cancelled');
  const { experimentId, adapterId } = experiment.created;
  const { acceptedKind } = experiment.adapter;
  const isSaved = acceptedKind === 'checkpoint' || acceptedKind === 'created';
  const save: Operation[] = isSaved ? [] : [{ kind: 'checkpoint', label: 'cancelled' }];
  return [
    { type: 'ExperimentCancelled', payload: { experimentId, reason: 'requested' } },
    ...(save.length === 0
      ? []
      : decideAcceptOperations(acceptingAdapter(experiment), adapterId, save, {
          kind: 'experiment',
          experimentId,
          runOrdinal: Math.max(0, experiment.runs - 1),
          step: Math.max(0, experiment.stepsOfLastRun - 1),
        }).payloads.map((payload): Fact => ({ type: 'OperationAccepted', payload }))),
  ];
}

function assertNotEnded(experiment: OpenExperiment, verb: string): void {
  if (!isEnded(experiment)) return;
  throw new DomainError(
    'IllegalState',
    'experiment_ended',
    `experiment "${experiment.created.name}" is ${experiment.status} and cannot be ${verb}; create another one`,
    { context: { status: experiment.status } },
  );
}
