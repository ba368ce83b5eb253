import fc from 'fast-check';
import { int32Tensor, toFloat32Array, type ExperimentCreated, type PayloadOf } from '#hotbed/contracts';
import { evolve, NO_EXPERIMENT, type Experiment, type Fact, type OpenExperiment } from './experiment';
import { decideCancel, decidePause, decideResume } from './experiment.decider';
import { batchNeed, decide, whatIsDue, type Batch } from './training.decider';
import { toAppendItem } from './append-item';

const id = (n: number): string => `00000000-0000-7000-8000-${n.toString(16).padStart(12, '0')}`;
const EXPERIMENT = id(1);
const DIGEST = 'd'.repeat(64);

const created: ExperimentCreated = {
  experimentId: EXPERIMENT,
  name: 'reverse',
  adapterId: id(2),
  adapterName: 'reverse',
  dataStreamId: id(3),
  baseDigest: DIGEST,
  numericsId: 'f32-1',
  adapterSpec: { rank: 8, alpha: 16, rslora: false, targets: ['q'], seed: '1' },
  algorithm: {
    kind: 'grpo',
    stepsPerRun: 2,
    promptsPerStep: 2,
    samplesPerPrompt: 4,
    loss: { name: 'importance_sampling' },
    adam: { learningRate: 0.01, beta1: 0.9, beta2: 0.95, eps: 1e-8, weightDecay: 0, gradClipNorm: 1 },
    schedule: { kind: 'linear', finalFraction: 0.5 },
    sampling: { temperature: 1, topK: 0, topP: 1, maxTokens: 8, stopTokenIds: [2] },
  },
  reward: { verifier: 'exact_match', config: {} },
  trigger: { kind: 'manual' },
  checkpointEverySteps: 10,
  seed: '42',
};

const batch: Batch = {
  usableRecords: 9,
  prompts: [0, 1].map((i) => ({
    recordId: id(100 + i),
    streamVersion: String(2 + i),
    subjectIds: [`s${i}`],
    tokens: Int32Array.from([1, 4 + i, 3]),
  })),
};

const trigger = (n: number): Fact => ({
  type: 'TrainingTriggered',
  payload: {
    triggerId: id(200 + n),
    experimentId: EXPERIMENT,
    dataStreamId: id(3),
    from: String(10 * n + 1),
    to: String(10 * n + 10),
    records: 10,
    cause: 'manual',
  },
});

/** Given facts, then everything that is due is done until the experiment waits. */
function given(...facts: Fact[]): { experiment: OpenExperiment; decided: Fact[]; history: Fact[] } {
  const history: Fact[] = [{ type: 'ExperimentCreated', payload: created }];
  let state = foldOf(history);
  const decided: Fact[] = [];
  for (const fact of facts) {
    history.push(fact);
    state = evolve(state, fact) as OpenExperiment;
    for (let due = whatIsDue(state); due !== null; due = whatIsDue(state)) {
      const own = decide(state, due, batchNeed(state, due) === null ? null : batch);
      decided.push(...own);
      history.push(...own);
      state = own.reduce<Experiment>(evolve, state) as OpenExperiment;
    }
  }
  return { experiment: state, decided, history };
}

const foldOf = (facts: readonly Fact[]): OpenExperiment =>
  facts.reduce<Experiment>(evolve, NO_EXPERIMENT) as OpenExperiment;

const typesOf = (facts: Fact[]): string[] => facts.map((fact) => fact.type);

function ofType<T extends Fact['type']>(facts: Fact[], type: T): PayloadOf<T>[] {
  return facts.filter((fact) => fact.type === type).map((fact) => fact.payload as PayloadOf<T>);
}

/** Rewards of one prompt of the request that a run of these facts is waiting for. */
function rewards(facts: Fact[], promptIndex: number, values: number[], valid = true): Fact {
  const requestId = ofType(given(...facts).decided, 'RolloutsRequested').at(-1)?.requestId ?? '';
  return {
    type: 'RewardsAssigned',
    payload: {
      requestId,
      requestVersion: '1',
      completedVersion: String(2 + promptIndex),
      promptIndex,
      experimentId: EXPERIMENT,
      sampledTokens: 20,
      source: { verifier: 'exact_match', configDigest: DIGEST },
      rewards: values.map((reward, sampleIndex) => ({ rolloutId: id(900 + sampleIndex), sampleIndex, reward, valid })),
    },
  };
}

function checkpointed(opIndex: string, version: number): Fact {
  const file = { digest: DIGEST, size: 1, mediaType: 'x/y' };
  const { adapterId, adapterSpec: spec, baseDigest, numericsId } = created;
  return {
    type: 'AdapterCheckpointed',
    payload: {
      ...{ adapterId, version, opIndex, spec, baseDigest, numericsId, parentVersion: null, label: null },
      ...{ weightsDigest: DIGEST, stateDigest: opIndex.repeat(64).slice(0, 64) },
      ...{ weightsFile: file, configFile: file, stateFile: file, workerId: id(9), leaseEpoch: '1' },
    },
  };
}

function aFailedOperation(opIndex: string): Fact {
  return {
    type: 'OperationFailed',
    payload: {
      ...{ adapterId: created.adapterId, opIndex, kind: 'optim_step', workerId: id(9), leaseEpoch: '1' },
      ...{ stateDigest: DIGEST, code: 'not_finite', message: 'gradient norm is NaN' },
    },
  };
}

/** Facts of whole steps, each prompt with one right answer of four. */
function steps(count: number): Fact[] {
  const facts = [trigger(0)];
  for (let step = 0; step < count; step++) {
    facts.push(rewards(facts, 0, [1, 0, 0, 0]));
    facts.push(rewards(facts, 1, [0, 0, 1, 0]));
  }
  return facts;
}

describe('an idle experiment', () => {
  it('waits for a trigger', () => {
    expect(given().decided).toEqual([]);
  });

  it('starts its first run when triggered, and asks for rollouts of the new adapter', () => {
    const { decided, experiment } = given(trigger(0));
    expect(typesOf(decided)).toEqual(['ExperimentStarted', 'TrainingRunStarted', 'RolloutsRequested']);
    expect(ofType(decided, 'RolloutsRequested')[0]).toMatchObject({ runOrdinal: 0, step: 0, opIndex: '0' });
    expect(experiment.status).toBe('training');
  });

  it('takes a trigger once', () => {
    expect(typesOf(given(trigger(0), trigger(0)).decided)).toHaveLength(3);
  });

  it('fails where no record fits the model, and says which window', () => {
    const idle = given().experiment;
    const triggered = evolve(idle, trigger(0)) as OpenExperiment;
    const due = whatIsDue(triggered);
    expect(due && decide(triggered, due, { usableRecords: 0, prompts: [] })).toMatchObject([
      { type: 'ExperimentFailed', payload: { code: 'no_usable_record' } },
    ]);
  });
});

describe('a step', () => {
  it('waits for every group', () => {
    const facts = [trigger(0)];
    const { decided } = given(...facts, rewards(facts, 1, [1, 0, 0, 0]));
    expect(ofType(decided, 'TrainingStepCompleted')).toEqual([]);
  });

  it('gives operations, its record and the next request together', () => {
    const { decided } = given(...steps(1));
    expect(typesOf(decided).slice(3)).toEqual([
      'TrainingStepCompleted',
      'OperationAccepted',
      'OperationAccepted',
      'RolloutsRequested',
    ]);
    expect(ofType(decided, 'OperationAccepted').map((accepted) => accepted.opIndex)).toEqual(['1', '2']);
    expect(ofType(decided, 'RolloutsRequested').at(-1)?.opIndex).toBe('2');
    expect(ofType(decided, 'TrainingStepCompleted')[0]).toMatchObject({
      rollouts: 8,
      rewardMean: 0.25,
      groupsWithVariance: 2,
      validAnswers: 8,
      sampledTokens: 40,
      policyOpIndex: '0',
      acceptedOpIndex: '2',
      skipped: null,
    });
  });

  it('records the policy that sampled and what was accepted since, so that staleness shows (SkyRL#1870, AReaL#421)', () => {
    const { decided } = given(...steps(2));
    const completed = ofType(decided, 'TrainingStepCompleted');
    const asked = ofType(decided, 'RolloutsRequested').slice(0, completed.length);
    expect(completed.map((step) => step.policyOpIndex)).toEqual(asked.map((request) => request.opIndex));
    expect(completed.map((step) => Number(step.acceptedOpIndex) - Number(step.policyOpIndex))).toEqual([2, 3]);
  });

  it('is the same whatever group came first', () => {
    const facts = [trigger(0)];
    const first = rewards(facts, 0, [1, 0, 0, 0]);
    const second = rewards(facts, 1, [0, 0, 1, 0]);
    expect(given(...facts, second, first).decided).toEqual(given(...facts, first, second).decided);
  });

  it('divides advantages by the rollouts of the step and names what each datum came from', () => {
    const [accepted] = ofType(given(...steps(1)).decided, 'OperationAccepted');
    const operation = accepted?.operation;
    if (operation?.kind !== 'forward_backward') throw new Error('expected forward_backward first');
    const [datum] = operation.datums;
    if (datum?.source !== 'rollouts') throw new Error('expected a datum of rollouts');
    expect(datum).toMatchObject({
      promptIndex: 0,
      requestVersion: '1',
      completedVersion: '2',
      recordId: id(100),
      subjectIds: ['s0'],
    });
    const spread = Math.sqrt(3) / 4 + 1e-6;
    expect([...toFloat32Array(datum.advantages)]).toEqual(
      [0.75, -0.25, -0.25, -0.25].map((d) => Math.fround(d / spread / 8)),
    );
  });

  it('leaves out groups whose rewards are equal', () => {
    const facts = [trigger(0)];
    const mixed = [rewards(facts, 0, [1, 1, 1, 1]), rewards(facts, 1, [1, 0, 0, 0])];
    const [accepted] = ofType(given(...facts, ...mixed).decided, 'OperationAccepted');
    expect(accepted?.operation).toMatchObject({ datums: [{ promptIndex: 1 }] });
  });

  it.each([
    ['no_variance', true],
    ['no_valid_answer', false],
  ] as const)('without variance is recorded as %s and issues no operation', (skipped, valid) => {
    const facts = [trigger(0)];
    const equal = [rewards(facts, 0, [0, 0, 0, 0], valid), rewards(facts, 1, [0, 0, 0, 0], valid)];
    const { decided } = given(...facts, ...equal);
    expect(ofType(decided, 'TrainingStepCompleted')).toMatchObject([{ skipped, acceptedOpIndex: '0' }]);
    expect(ofType(decided, 'OperationAccepted')).toEqual([]);
    expect(ofType(decided, 'RolloutsRequested').at(-1)).toMatchObject({ step: 1, opIndex: '0' });
  });

  it('takes the learning rate of its place in the run', () => {
    const rates = ofType(given(...steps(2)).decided, 'TrainingStepCompleted').map((step) => step.learningRate);
    expect(rates).toEqual([0.01, 0.005]);
  });
});

describe('what needs records', () => {
  it('is refused without them instead of asked for ever', () => {
    const triggered = evolve(given().experiment, trigger(0)) as OpenExperiment;
    expect(() => decide(triggered, whatIsDue(triggered)!, null)).toThrow('start_run needs the records');
    const started = foldOf(given(trigger(0)).history.filter((fact) => fact.type !== 'RolloutsRequested'));
    expect(() => decide(started, whatIsDue(started)!, null)).toThrow('request_rollouts needs the records');
  });
});

describe('a run', () => {
  it('ends with a version, and is complete when that exists', () => {
    const facts = steps(2);
    const before = given(...facts);
    expect(before.experiment.status).toBe('training');
    expect(ofType(before.decided, 'OperationAccepted').at(-1)?.operation).toMatchObject({ kind: 'checkpoint' });
    const { decided, experiment } = given(...facts, checkpointed('5', 1));
    expect(ofType(decided, 'TrainingRunCompleted')).toMatchObject([
      { runOrdinal: 0, steps: 2, finalOpIndex: '5', stateDigest: '5'.repeat(64) },
    ]);
    expect(experiment.status).toBe('idle');
  });

  it('is followed by the next window that waited', () => {
    const { decided, experiment } = given(trigger(0), trigger(1), ...steps(2).slice(1), checkpointed('5', 1));
    expect(ofType(decided, 'TrainingRunStarted').map((run) => run.window.from)).toEqual(['1', '11']);
    expect(ofType(decided, 'ExperimentStarted')).toHaveLength(1);
    expect(experiment.queue).toEqual([]);
  });
});

describe('what ends an experiment', () => {
  const operationFailed = aFailedOperation('2');

  it('an operation that failed, under its own code', () => {
    const { decided, experiment } = given(...steps(1), operationFailed);
    expect(ofType(decided, 'ExperimentFailed')).toMatchObject([{ code: 'not_finite' }]);
    expect(experiment).toMatchObject({ status: 'failed', failure: { code: 'not_finite' }, run: null });
  });

  it('rewards of the current step that could not be given', () => {
    const facts = [trigger(0)];
    const { requestId } = rewards(facts, 0, [0]).payload as PayloadOf<'RewardsAssigned'>;
    const failed: Fact = {
      type: 'RewardsFailed',
      payload: {
        ...{ requestId, requestVersion: '1', completedVersion: '2', promptIndex: 0, experimentId: EXPERIMENT },
        ...{ code: 'no_answer', message: 'the record has no answer' },
      },
    };
    expect(ofType(given(...facts, failed).decided, 'ExperimentFailed')).toMatchObject([{ code: 'no_answer' }]);
    const stale: Fact = { ...failed, payload: { ...failed.payload, requestId: id(7) } };
    expect(ofType(given(...facts, stale).decided, 'ExperimentFailed')).toEqual([]);
  });

  it('nothing after the end changes it', () => {
    const { experiment } = given(...steps(1), operationFailed);
    for (const fact of [trigger(3), operationFailed, rewards([trigger(0)], 0, [1, 0, 0, 0])]) {
      const after = evolve(experiment, fact) as OpenExperiment;
      expect({ ...after, triggeredTo: '' }).toEqual({ ...experiment, triggeredTo: '' });
      expect(whatIsDue(after)).toBeNull();
    }
  });
});

describe('control', () => {
  it('pausing twice is pausing once; resuming what runs is nothing', () => {
    const { experiment } = given(trigger(0));
    const [paused] = decidePause(experiment);
    const held = evolve(experiment, paused!) as OpenExperiment;
    expect(held.status).toBe('paused');
    expect(decidePause(held)).toEqual([]);
    expect(decideResume(experiment)).toEqual([]);
    expect(evolve(held, decideResume(held)[0]!)).toMatchObject({ status: 'training' });
  });

  it('a paused step still counts, and asks for no other', () => {
    const facts = [trigger(0)];
    const pause: Fact = { type: 'ExperimentPaused', payload: { experimentId: EXPERIMENT, reason: 'requested' } };
    const { decided, experiment } = given(
      ...facts,
      pause,
      rewards(facts, 0, [1, 0, 0, 0]),
      rewards(facts, 1, [1, 0, 0, 0]),
    );
    expect(ofType(decided, 'OperationAccepted')).toHaveLength(2);
    expect(ofType(decided, 'RolloutsRequested')).toHaveLength(1);
    expect(experiment.status).toBe('paused');
  });

  it('cancelling saves unsaved steps as a version', () => {
    expect(typesOf(decideCancel(given(trigger(0)).experiment))).toEqual(['ExperimentCancelled']);
    const facts = decideCancel(given(...steps(1)).experiment);
    expect(typesOf(facts)).toEqual(['ExperimentCancelled', 'OperationAccepted']);
    expect(ofType(facts, 'OperationAccepted')[0]).toMatchObject({ opIndex: '3', operation: { kind: 'checkpoint' } });
  });
});

describe('the fold', () => {
  it.each([
    ['within a run', [...steps(1)]],
    ['after a run', [...steps(2), checkpointed('5', 1)]],
    ['in the second run', [trigger(0), trigger(1), ...steps(2).slice(1), checkpointed('5', 1)]],
    ['after the end', [...steps(1), aFailedOperation('2')]],
  ])('changes nothing when any fact comes again at any later time, %s', (_, facts) => {
    const { history, experiment } = given(...facts);
    const place = fc.nat({ max: history.length - 1 });
    fc.assert(
      fc.property(place, place, (a, b) => {
        const [of, after] = a <= b ? [a, b] : [b, a];
        const repeated = history.toSpliced(after + 1, 0, history[of]!);
        expect(foldOf(repeated)).toEqual(experiment);
      }),
      { seed: 20261130, numRuns: 500 },
    );
  });

  it('decides nothing because of a fact that came again', () => {
    const facts = [...steps(2), checkpointed('5', 1)];
    for (const again of facts) expect(given(...facts, again).decided).toEqual(given(...facts).decided);
  });
});

describe('an append item', () => {
  const occasion = {
    ...{ tenantId: id(50), nowMs: 5, actor: 'app:orchestrator', causationId: null, newEventId: () => id(60) },
    experimentVersion: 4n,
  };

  it('holds a whole step: three streams, proposed indices, opened prompts', () => {
    const { experiment, decided } = given(...steps(1));
    const item = toAppendItem(experiment, decided.slice(3), occasion);
    expect(item.writes.map((write) => [write.streamId.split(':')[0], write.expected, write.events.length])).toEqual([
      ['experiment', 4n, 1],
      ['adapter', 'any', 2],
      ['rollouts', 'any', 1],
    ]);
    expect(item.heads).toEqual([{ change: 'accept', adapterId: created.adapterId, first: 1n, last: 2n }]);
    expect(item.requests).toMatchObject([{ change: 'open', promptIndexes: [0, 1], opIndex: 2n }]);
  });

  it('opens no request that names no experiment', () => {
    const { experiment, decided } = given(trigger(0));
    const nameless = decided.map((fact) =>
      fact.type === 'RolloutsRequested' ? { ...fact, payload: { ...fact.payload, experimentId: null } } : fact,
    );
    expect(() => toAppendItem(experiment, nameless, occasion)).toThrow('does not name it');
  });
});

it('tensors of requests are the tokens of the batch', () => {
  const [request] = ofType(given(trigger(0)).decided, 'RolloutsRequested');
  expect(request?.prompts[1]?.tokens).toEqual(int32Tensor([1, 5, 3]));
});
