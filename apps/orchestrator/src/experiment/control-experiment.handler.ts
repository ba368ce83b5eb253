import type { EventStore, ExperimentSummary, Transactions } from '#hotbed/contracts';
import type { Bases } from '#hotbed/models';
import type { Fact, OpenExperiment } from './experiment';
import { decideCancel, decidePause, decideResume } from './experiment.decider';
import type { ExperimentProcess } from './experiment-process';
import { liveBases, toSummary } from './experiment-summary';
import { experimentIdOf, noExperiment } from './find-experiment';

/** Pause, resume, cancel. */
export class ControlExperimentHandler {
  constructor(
    private readonly store: EventStore,
    private readonly transactions: Transactions,
    private readonly process: ExperimentProcess,
    private readonly bases: Bases,
    private readonly now: () => number = Date.now,
  ) {}

  pause(tenantId: string, ref: string, actor: string): Promise<ExperimentSummary> {
    return this.control(tenantId, ref, actor, decidePause);
  }

  resume(tenantId: string, ref: string, actor: string): Promise<ExperimentSummary> {
    return this.control(tenantId, ref, actor, decideResume);
  }

  cancel(tenantId: string, ref: string, actor: string): Promise<ExperimentSummary> {
    return this.control(tenantId, ref, actor, decideCancel);
  }

  /** @throws NotFound, DomainError IllegalState `experiment_ended` */
  private async control(
    tenantId: string,
    ref: string,
    actor: string,
    command: (experiment: OpenExperiment) => Fact[],
  ): Promise<ExperimentSummary> {
    const experimentId = await experimentIdOf(this.store, tenantId, ref);
    const live = await liveBases(this.bases);
    return this.transactions.run(async (uow) => {
      const row = await this.process.lock(uow, experimentId);
      if (row?.tenantId !== tenantId) throw noExperiment(ref);
      const { row: saved, item } = await this.process.advance(uow, row, { command, causationId: null, actor });
      if (item !== null) await uow.append([item]);
      return toSummary(saved, this.now(), live);
    });
  }
}
