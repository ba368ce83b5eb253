import {
  newId,
  streamId,
  type AnyStoredEvent,
  type AppendItem,
  type EventStore,
  type UnitOfWork,
} from '#hotbed/contracts';
import { ORCHESTRATOR_ACTOR } from '../orchestrator.actor';
import type { RecordWindows } from '../records/record-windows';
import { toAppendItem } from './append-item';
import { evolve, type Fact, type OpenExperiment } from './experiment';
import { experimentRows, type ExperimentRow } from './experiment-rows';
import { rebuildExperiment } from './rebuild-experiment';
import { batchNeed, decide, whatIsDue } from './training.decider';

/**
 * Process manager of all experiments.
 *
 * 1. Everything about one experiment happens under the lock of its row, in one transaction with what caused it.
 * 2. The row is a cache: where it is missing it is folded from the log.
 * 3. After every change it is asked what is due until nothing is; what is decided is appended as one item.
 */
export class ExperimentProcess {
  constructor(
    private readonly store: EventStore,
    private readonly windows: RecordWindows,
    private readonly now: () => number = Date.now,
  ) {}

  /** Locks the experiment's row; folds it first where there is none. null = no such experiment. */
  async lock(uow: UnitOfWork, experimentId: string): Promise<ExperimentRow | null> {
    const row = await experimentRows.lock(uow, experimentId);
    if (row !== null) return row;
    const rebuilt = await rebuildExperiment(this.store, experimentId);
    if (rebuilt === null) return null;
    await experimentRows.insert(uow, rebuilt);
    return experimentRows.lock(uow, experimentId);
  }

  /** The experiment that owns the adapter; null where none does. */
  async lockByAdapter(uow: UnitOfWork, adapterId: string): Promise<ExperimentRow | null> {
    const row = await experimentRows.lockByAdapter(uow, adapterId);
    if (row !== null) return row;
    const [created] = await this.store.readStream(streamId('adapter', adapterId), { limit: 1 });
    if (created?.type !== 'AdapterCreated' || created.payload.experimentId === null) return null;
    return this.lock(uow, created.payload.experimentId);
  }

  /**
   * Takes facts that are in the log, adds what `command` decides, then does everything that is due. Saves the row.
   * The caller appends `item` last: whoever holds the log's head lock must not wait for another row.
   */
  async advance(uow: UnitOfWork, row: ExperimentRow, input: ProcessInput): Promise<Advance> {
    let experiment = fold(row.experiment, input.facts ?? []);
    const decided = [...(input.command?.(experiment) ?? [])];
    experiment = fold(experiment, decided);
    for (let due = whatIsDue(experiment); due !== null; due = whatIsDue(experiment)) {
      const need = batchNeed(experiment, due);
      const batch = need === null ? null : await this.windows.batch(experiment.created, need);
      const facts = decide(experiment, due, batch);
      decided.push(...facts);
      experiment = fold(experiment, facts);
    }
    if (experiment === row.experiment) return { row, item: null };

    const own = decided.filter((fact) => EXPERIMENT_STREAM_TYPES.test(fact.type)).length;
    const nowMs = this.now();
    const saved = { ...row, experiment, streamVersion: row.streamVersion + BigInt(own), changedAtMs: nowMs };
    await experimentRows.save(uow, saved);
    if (decided.length === 0) return { row: saved, item: null };
    const item = toAppendItem(experiment, decided, {
      tenantId: row.tenantId,
      nowMs,
      actor: input.actor ?? ORCHESTRATOR_ACTOR,
      causationId: input.causationId,
      newEventId: newId,
      experimentVersion: row.streamVersion,
    });
    return { row: saved, item };
  }

  /** Facts about any number of experiments, in one transaction. Rows are locked in order of their ids. */
  async takeFacts(uow: UnitOfWork, events: readonly ExperimentFact[]): Promise<AppendItem[]> {
    const items: AppendItem[] = [];
    const ids = [...new Set(events.map((event) => event.experimentId))].sort();
    for (const experimentId of ids) {
      const row = await this.lock(uow, experimentId);
      if (row === null) continue;
      const facts = events.filter((event) => event.experimentId === experimentId).map((event) => event.event);
      const { item } = await this.advance(uow, row, { facts, causationId: facts.at(-1)?.eventId ?? null });
      if (item !== null) items.push(item);
    }
    return items;
  }
}

export interface ExperimentFact {
  experimentId: string;
  event: AnyStoredEvent;
}

export interface ProcessInput {
  facts?: readonly Fact[];
  command?: (experiment: OpenExperiment) => Fact[];
  causationId: string | null;
  /** Whose command it is; absent = nobody asked. */
  actor?: string;
}

export interface Advance {
  row: ExperimentRow;
  /** null = nothing was decided. */
  item: AppendItem | null;
}

const EXPERIMENT_STREAM_TYPES = /^(Experiment|Training(Run|Step))/;

function fold(experiment: OpenExperiment, facts: readonly Fact[]): OpenExperiment {
  return facts.reduce<OpenExperiment>((state, fact) => {
    const next = evolve(state, fact);
    return next.status === 'absent' ? state : next;
  }, experiment);
}
