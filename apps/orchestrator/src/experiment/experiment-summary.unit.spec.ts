import { evolve, NO_EXPERIMENT, type OpenExperiment } from './experiment';
import { toSummary } from './experiment-summary';
import type { ExperimentRow } from './experiment-rows';

const BASE = 'd'.repeat(64);
const NOW = 1_000_000;

function aTrainingExperiment(changes: Partial<OpenExperiment>, quietMs = 0): ExperimentRow {
  const created = evolve(NO_EXPERIMENT, {
    type: 'ExperimentCreated',
    payload: {
      experimentId: '00000000-0000-7000-8000-000000000001',
      name: 'reverse',
      adapterId: '00000000-0000-7000-8000-000000000002',
      adapterName: 'reverse',
      dataStreamId: '00000000-0000-7000-8000-000000000003',
      baseDigest: BASE,
      numericsId: 'f32-1',
      adapterSpec: { rank: 8, alpha: 16, rslora: false, targets: ['q'], seed: '1' },
      algorithm: {
        kind: 'grpo',
        stepsPerRun: 2,
        promptsPerStep: 2,
        samplesPerPrompt: 4,
        loss: { name: 'importance_sampling' },
        adam: { learningRate: 0.01, beta1: 0.9, beta2: 0.95, eps: 1e-8, weightDecay: 0, gradClipNorm: 1 },
        schedule: { kind: 'constant' },
        sampling: { temperature: 1, topK: 0, topP: 1, maxTokens: 8, stopTokenIds: [2] },
      },
      reward: { verifier: 'exact_match', config: {} },
      trigger: { kind: 'manual' },
      checkpointEverySteps: 10,
      seed: '42',
    },
  }) as OpenExperiment;
  return {
    tenantId: '00000000-0000-7000-8000-000000000004',
    streamVersion: 1n,
    createdAtMs: 0,
    changedAtMs: NOW - quietMs,
    experiment: { ...created, status: 'training', ...changes },
  };
}

const stalled = (row: ExperimentRow, live = new Set([`${BASE}@f32-1`])) => toSummary(row, NOW, live).stalled;

describe('why learning stands still', () => {
  it('is not said while it moves', () => {
    expect(stalled(aTrainingExperiment({ lastRewardMean: 0.5 }))).toBeNull();
  });

  it('is named where three steps had no variance, unless every answer is right', () => {
    expect(stalled(aTrainingExperiment({ stepsWithoutVariance: 2, lastRewardMean: 0 }))).toBeNull();
    expect(stalled(aTrainingExperiment({ stepsWithoutVariance: 3, lastRewardMean: 0 }))).toBe(
      'groups_without_variance',
    );
    expect(stalled(aTrainingExperiment({ stepsWithoutVariance: 3, lastRewardMean: 1 }))).toBeNull();
  });

  it('is named where no answer was valid', () => {
    const row = aTrainingExperiment({ stepsWithoutVariance: 3, stepsWithoutValidAnswer: 3, lastRewardMean: 0 });
    expect(stalled(row)).toBe('no_valid_answer');
  });

  it('is named where the numbers broke', () => {
    const failure = { code: 'not_finite', message: 'NaN' };
    expect(stalled(aTrainingExperiment({ status: 'failed', failure }))).toBe('not_finite');
  });

  it('is named where no worker has the base, or nothing has happened for long', () => {
    expect(stalled(aTrainingExperiment({}), new Set())).toBe('waiting_for_worker');
    expect(stalled(aTrainingExperiment({}, 60_000))).toBe('waiting_for_worker');
    expect(stalled(aTrainingExperiment({ status: 'idle' }), new Set())).toBeNull();
  });
});
