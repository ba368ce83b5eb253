import { aliasStreamId, newId, streamId, type ExperimentSummary } from '#hotbed/contracts';
import { withTestDatabase } from '#hotbed/event-store/testing';
import { ScriptedPlatform } from '../testing/scripted-platform';
import { operationsLane } from './experiment.lanes';
import { experimentRows } from './experiment-rows';
import { rebuildExperiment } from './rebuild-experiment';
import { restoreExperiments } from './restore-experiments';

const db = withTestDatabase();

async function aPreparedPlatform(records = 10): Promise<ScriptedPlatform> {
  const platform = new ScriptedPlatform(db);
  await platform.prepare(records);
  return platform;
}

/** Everything of an adapter's operations that does not name an id: equal for equal experiments. */
async function operationsOf(platform: ScriptedPlatform, { adapterId }: ExperimentSummary) {
  const accepted = await platform.eventsOf(streamId('adapter', adapterId), 'OperationAccepted');
  return accepted.map(({ opIndex, operation }) =>
    operation.kind === 'forward_backward'
      ? {
          opIndex,
          loss: operation.loss,
          datums: operation.datums.map((datum) =>
            datum.source === 'rollouts'
              ? [datum.promptIndex, datum.requestVersion, datum.subjectIds, datum.advantages]
              : [],
          ),
        }
      : { opIndex, ...operation },
  );
}

const row = (experimentId: string) => db.transactions.run((uow) => experimentRows.read(uow, experimentId));

/** rebuild = live, apart from when the row was last touched. */
async function expectRebuildEqualsLive(experimentId: string): Promise<void> {
  const live = await row(experimentId);
  const rebuilt = await rebuildExperiment(db.store, experimentId);
  expect({
    ...rebuilt,
    changedAtMs: 0,
    experiment: JSON.parse(JSON.stringify(rebuilt?.experiment)) as unknown,
  }).toEqual({
    ...live,
    changedAtMs: 0,
  });
}

describe('an experiment over the log', () => {
  it('trains its run: operations, versions, alias, completion', async () => {
    const platform = await aPreparedPlatform();
    const experiment = await platform.create();
    await platform.trigger(experiment.experimentId, 2n, 11n);
    await platform.runUntilQuiet(experiment);

    const stream = streamId('experiment', experiment.experimentId);
    const [run] = await platform.eventsOf(stream, 'TrainingRunCompleted');
    expect(run).toMatchObject({ runOrdinal: 0, steps: 4 });
    const steps = await platform.eventsOf(stream, 'TrainingStepCompleted');
    expect(steps.map((step) => step.step)).toEqual([0, 1, 2, 3]);
    expect(steps[0]).toMatchObject({
      rollouts: 12,
      groups: 3,
      sampledTokens: 36,
      validAnswers: 12,
      policyOpIndex: '0',
    });
    const accepted = await platform.eventsOf(streamId('adapter', experiment.adapterId), 'OperationAccepted');
    expect(accepted.map((operation) => operation.operation.kind)).toEqual([
      ...['forward_backward', 'optim_step', 'forward_backward', 'optim_step', 'checkpoint'],
      ...['forward_backward', 'optim_step', 'forward_backward', 'optim_step', 'checkpoint'],
    ]);
    expect(steps.map((step) => step.acceptedOpIndex)).toEqual(['2', '5', '7', '10']);
    const moves = await platform.eventsOf(aliasStreamId(experiment.adapterId, 'latest'), 'AliasMoved');
    expect(moves.map(({ version, previousVersion }) => [version, previousVersion])).toEqual([
      [1, null],
      [2, 1],
    ]);
    expect((await row(experiment.experimentId))?.experiment).toMatchObject({ status: 'idle', totalSteps: 4 });
    await expectRebuildEqualsLive(experiment.experimentId);
  });

  it('pins each request to the newest accepted operation and seeds it by position alone', async () => {
    const platform = await aPreparedPlatform();
    const experiment = await platform.create();
    await platform.trigger(experiment.experimentId, 2n, 11n);
    await platform.runUntilQuiet(experiment);
    const requests = await platform.eventsOf(streamId('rollouts', experiment.experimentId), 'RolloutsRequested');
    expect(requests.map((request) => request.opIndex)).toEqual(['0', '2', '5', '7']);
    const seeds = requests.flatMap((request) => request.prompts.flatMap((prompt) => prompt.seeds));
    expect(new Set(seeds).size).toBe(4 * 3 * 4);
    expect(requests[0]?.prompts[0]?.tokens.shape).toEqual([5]);
  });

  it('queues triggers that arrive during a run and takes them in order', async () => {
    const platform = await aPreparedPlatform();
    const experiment = await platform.create({ steps: 2 });
    await platform.trigger(experiment.experimentId, 2n, 6n);
    await platform.trigger(experiment.experimentId, 7n, 9n);
    await platform.trigger(experiment.experimentId, 10n, 11n);
    await platform.runUntilQuiet(experiment);
    const runs = await platform.eventsOf(streamId('experiment', experiment.experimentId), 'TrainingRunStarted');
    expect(runs.map(({ runOrdinal, window, records }) => [runOrdinal, window.from, window.to, records])).toEqual([
      [0, '2', '6', 5],
      [1, '7', '9', 3],
      [2, '10', '11', 2],
    ]);
    await expectRebuildEqualsLive(experiment.experimentId);
  });

  it('records a step without variance and issues no operation but the version at the end', async () => {
    const platform = await aPreparedPlatform();
    platform.rewards = (request, promptIndex) => (request.prompts[promptIndex]?.seeds ?? []).map(() => 1);
    const experiment = await platform.create({ steps: 3 });
    await platform.trigger(experiment.experimentId, 2n, 11n);
    await platform.runUntilQuiet(experiment);
    const steps = await platform.eventsOf(streamId('experiment', experiment.experimentId), 'TrainingStepCompleted');
    expect(steps.map((step) => step.skipped)).toEqual(['no_variance', 'no_variance', 'no_variance']);
    const accepted = await platform.eventsOf(streamId('adapter', experiment.adapterId), 'OperationAccepted');
    expect(accepted.map((operation) => operation.operation.kind)).toEqual(['checkpoint']);
    expect((await row(experiment.experimentId))?.experiment.status).toBe('idle');
  });

  it('holds after the current step when paused, and goes on when resumed', async () => {
    const platform = await aPreparedPlatform();
    const experiment = await platform.create();
    await platform.trigger(experiment.experimentId, 2n, 11n);
    await platform.deliver(experiment);
    expect((await platform.control.pause(platform.tenantId, experiment.name, platform.actor)).state).toBe('paused');
    await platform.runUntilQuiet(experiment);
    const stream = streamId('experiment', experiment.experimentId);
    expect(await platform.eventsOf(stream, 'TrainingStepCompleted')).toHaveLength(1);
    expect((await row(experiment.experimentId))?.experiment.run?.pending).toBeNull();

    expect((await platform.control.resume(platform.tenantId, experiment.name, platform.actor)).state).toBe('training');
    await platform.runUntilQuiet(experiment);
    expect(await platform.eventsOf(stream, 'TrainingRunCompleted')).toHaveLength(1);
    await expectRebuildEqualsLive(experiment.experimentId);
    const actors = new Map((await db.store.readStream(stream)).map((event) => [event.type, event.actor]));
    expect(actors.get('ExperimentPaused')).toBe(platform.actor);
    expect(actors.get('ExperimentResumed')).toBe(platform.actor);
    expect(actors.get('TrainingRunCompleted')).toBe('app:orchestrator');
  });

  it('saves what was learned when cancelled, and does nothing after', async () => {
    const platform = await aPreparedPlatform();
    const experiment = await platform.create({ checkpointEverySteps: 100 });
    await platform.trigger(experiment.experimentId, 2n, 11n);
    await platform.deliver(experiment);
    await platform.answer(experiment);
    await platform.deliver(experiment);
    expect((await platform.control.cancel(platform.tenantId, experiment.experimentId, platform.actor)).state).toBe(
      'cancelled',
    );
    await platform.runUntilQuiet(experiment);
    const accepted = await platform.eventsOf(streamId('adapter', experiment.adapterId), 'OperationAccepted');
    expect(accepted.map((operation) => operation.operation.kind)).toEqual([
      'forward_backward',
      'optim_step',
      'checkpoint',
    ]);
    await expect(platform.control.resume(platform.tenantId, experiment.name, platform.actor)).rejects.toMatchObject({
      code: 'experiment_ended',
    });
    await expectRebuildEqualsLive(experiment.experimentId);
  });

  it('fails with the code of an operation that failed', async () => {
    const platform = await aPreparedPlatform();
    const experiment = await platform.create();
    await platform.trigger(experiment.experimentId, 2n, 11n);
    await platform.deliver(experiment);
    await platform.answer(experiment);
    await platform.deliver(experiment);
    await platform.failOperation(experiment.adapterId, '1', 'not_finite', 'the loss is NaN');
    await platform.advance(
      'failed-operations',
      streamId('adapter', experiment.adapterId),
      operationsLane(platform.process, db.store),
    );
    await platform.runUntilQuiet(experiment);
    expect((await row(experiment.experimentId))?.experiment.failure).toEqual({
      code: 'not_finite',
      message: 'operation 1 (forward_backward): the loss is NaN',
    });
    await expectRebuildEqualsLive(experiment.experimentId);
  });

  it('fails with the reason why a group got no rewards', async () => {
    const platform = await aPreparedPlatform();
    const experiment = await platform.create();
    await platform.trigger(experiment.experimentId, 2n, 11n);
    await platform.deliver(experiment);
    const stream = streamId('rollouts', experiment.experimentId);
    const [requested] = await platform.eventsOf(stream, 'RolloutsRequested');
    await platform.append(stream, [
      platform.event('RewardsFailed', {
        requestId: requested?.requestId ?? '',
        requestVersion: '1',
        completedVersion: '2',
        promptIndex: 0,
        experimentId: experiment.experimentId,
        code: 'no_answer',
        message: 'the record has no answer',
      }),
    ]);
    await platform.runUntilQuiet(experiment);
    expect((await row(experiment.experimentId))?.experiment).toMatchObject({
      status: 'failed',
      failure: { code: 'no_answer', message: 'the record has no answer' },
    });
    await expectRebuildEqualsLive(experiment.experimentId);
  });

  it('leaves out records that the model cannot take, and fails where none is left', async () => {
    const platform = await aPreparedPlatform(2);
    await platform.addRecords(1, 'a'.repeat(200));
    const experiment = await platform.create({ steps: 1 });
    await platform.trigger(experiment.experimentId, 2n, 4n);
    await platform.runUntilQuiet(experiment);
    const stream = streamId('experiment', experiment.experimentId);
    expect(await platform.eventsOf(stream, 'TrainingRunStarted')).toMatchObject([{ records: 2 }]);
    await platform.trigger(experiment.experimentId, 4n, 5n);
    await platform.runUntilQuiet(experiment);
    expect(await platform.eventsOf(stream, 'ExperimentFailed')).toMatchObject([{ code: 'no_usable_record' }]);
  });

  it('belongs to its tenant', async () => {
    const platform = await aPreparedPlatform();
    const experiment = await platform.create();
    await expect(platform.control.pause(newId(), experiment.experimentId, platform.actor)).rejects.toMatchObject({
      code: 'experiment_not_found',
    });
  });
});

describe('after a crash at any moment', () => {
  it('the operations are those of an undisturbed run', async () => {
    const calm = await aPreparedPlatform();
    const undisturbed = await calm.create({ steps: 5 });
    await calm.trigger(undisturbed.experimentId, 2n, 11n);
    await calm.runUntilQuiet(undisturbed);

    const platform = await aPreparedPlatform();
    const experiment = await platform.create({ steps: 5 });
    await platform.trigger(experiment.experimentId, 2n, 11n);
    let transactions = 0;
    platform.beforeCommit = () => {
      transactions += 1;
      if (transactions % 2 === 1) throw new Error('killed before the commit');
    };
    let kills = 0;
    for (;;) {
      try {
        await platform.runUntilQuiet(experiment);
        break;
      } catch (error) {
        expect(error).toMatchObject({ message: 'killed before the commit' });
        kills += 1;
        platform.restart();
        // Now and then the cache is gone as well.
        if (kills % 3 === 0) await db.pool.query('DELETE FROM orchestrator.experiment_process');
      }
    }
    expect(kills).toBeGreaterThan(6);
    expect(await operationsOf(platform, experiment)).toEqual(await operationsOf(calm, undisturbed));
    await expectRebuildEqualsLive(experiment.experimentId);
  });

  it('events that are delivered from the beginning again change nothing', async () => {
    const platform = await aPreparedPlatform();
    const experiment = await platform.create();
    await platform.trigger(experiment.experimentId, 2n, 11n);
    await platform.runUntilQuiet(experiment);
    const before = await db.store.head();
    await db.pool.query('UPDATE es.consumer_lane SET version = 0');
    await platform.runUntilQuiet(experiment);
    expect(await db.store.head()).toEqual(before);
  });

  it('a table that was emptied is restored and goes on', async () => {
    const platform = await aPreparedPlatform();
    const experiment = await platform.create();
    await platform.trigger(experiment.experimentId, 2n, 11n);
    await platform.deliver(experiment);
    await platform.answer(experiment);
    await db.pool.query('DELETE FROM orchestrator.experiment_process');
    platform.restart();
    expect(await restoreExperiments(db.store, db.transactions, platform.process)).toBeGreaterThan(0);
    await platform.runUntilQuiet(experiment);
    const stream = streamId('experiment', experiment.experimentId);
    const steps = await platform.eventsOf(stream, 'TrainingStepCompleted');
    expect(steps.map((step) => step.step)).toEqual([0, 1, 2, 3]);
    await expectRebuildEqualsLive(experiment.experimentId);
  });
});
