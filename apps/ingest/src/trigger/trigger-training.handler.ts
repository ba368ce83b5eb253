import {
  DomainError,
  NotFound,
  idSchema,
  type CommandReply,
  type CommandRequest,
  type EventStore,
  type Transactions,
} from '#hotbed/contracts';
import { INGEST_ACTOR } from '../ingest.actor';
import { fireTriggers } from './fire-trigger';
import { intervalWindow, manualWindow } from './trigger.decider';
import { triggers } from './trigger.read-model';

/** Starts training runs by hand and by the clock. */
export class TriggerTrainingHandler {
  constructor(
    private readonly events: EventStore,
    private readonly transactions: Transactions,
    private readonly now: () => number = Date.now,
  ) {}

  /** @throws NotFound, IllegalState `no_new_records` | `experiment_ended` */
  async trigger(
    tenantId: string,
    request: CommandRequest<'ingest', 'trigger-training'>,
    actor: string,
  ): Promise<CommandReply<'ingest', 'trigger-training'>> {
    const experimentId = await this.experimentIdOf(tenantId, request.experiment);
    return this.transactions.run(async (uow) => {
      const trigger = await triggers.ofExperiment(uow, tenantId, experimentId);
      if (trigger === null) throw await this.notFollowed(tenantId, experimentId, request.experiment);
      const window = manualWindow(trigger, await triggers.recordsAfter(uow, trigger));
      const [fired] = await fireTriggers(
        uow,
        [{ trigger, window, cause: 'manual', causationId: null, actor }],
        this.now(),
      );
      return { triggerId: fired!.triggerId, from: fired!.from, to: fired!.to, records: fired!.records };
    });
  }

  /** Fires every interval trigger whose time is over. Called by the clock; safe in several processes. */
  async fireDue(): Promise<void> {
    const due = await this.transactions.run((uow) => triggers.due(uow, this.now()));
    for (const { tenantId, experimentId } of due) {
      await this.transactions.run(async (uow) => {
        const trigger = await triggers.ofExperiment(uow, tenantId, experimentId);
        if (trigger === null) return;
        const window = intervalWindow(trigger, await triggers.recordsAfter(uow, trigger), this.now());
        if (window !== null) {
          await fireTriggers(
            uow,
            [{ trigger, window, cause: 'interval', causationId: null, actor: INGEST_ACTOR }],
            this.now(),
          );
        }
      });
    }
  }

  private async experimentIdOf(tenantId: string, ref: string): Promise<string> {
    const byName = await this.events.idOfName(tenantId, 'experiment', ref);
    if (byName !== null) return byName;
    if (idSchema.safeParse(ref).success) return ref;
    throw new NotFound('experiment', ref, 'see hotbed experiments list');
  }

  /** Ended, not yet seen by ingest, or none of this tenant's. */
  private async notFollowed(tenantId: string, experimentId: string, ref: string): Promise<DomainError> {
    const events = await this.events.readStream(`experiment:${experimentId}`);
    if (events[0]?.tenantId !== tenantId) return new NotFound('experiment', ref, 'see hotbed experiments list');
    const ended = events.some((e) => /^Experiment(Completed|Failed|Cancelled)$/.test(e.type));
    return ended
      ? new DomainError('IllegalState', 'experiment_ended', 'the experiment has ended; create another one')
      : new DomainError('Unavailable', 'experiment_not_known_yet', 'the experiment was just created; try again', {
          retryAfterMs: 1_000,
        });
  }
}
