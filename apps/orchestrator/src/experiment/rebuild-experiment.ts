import { streamId, type AnyStoredEvent, type EventStore } from '#hotbed/contracts';
import { evolve, NO_EXPERIMENT, type Experiment } from './experiment';
import type { ExperimentRow } from './experiment-rows';

const PAGE = 500;

/** Folds an experiment from the log alone; null where no such experiment was created. */
export async function rebuildExperiment(store: EventStore, experimentId: string): Promise<ExperimentRow | null> {
  const [first] = await store.readStream(streamId('experiment', experimentId), { limit: 1 });
  if (first?.type !== 'ExperimentCreated') return null;
  const { adapterId, dataStreamId } = first.payload;
  let experiment: Experiment = NO_EXPERIMENT;
  let streamVersion = 0n;
  let lastMs = first.occurredAtMs;
  const streams = [
    streamId('experiment', experimentId),
    streamId('data-stream', dataStreamId),
    streamId('rollouts', experimentId),
    streamId('adapter', adapterId),
  ];
  for await (const event of inLogOrder(store, streams)) {
    experiment = evolve(experiment, event);
    lastMs = event.recordedAtMs;
    if (event.streamId === first.streamId) streamVersion = event.streamVersion;
  }
  if (experiment.status === 'absent') return null;
  return { tenantId: first.tenantId, streamVersion, createdAtMs: first.occurredAtMs, changedAtMs: lastMs, experiment };
}

/** Ids of all experiments, oldest first. */
export async function* experimentIds(store: EventStore): AsyncGenerator<string> {
  for (let after = 0n; ;) {
    const events = await store.readAll({ after, limit: PAGE, categories: ['experiment'] });
    for (const event of events) if (event.type === 'ExperimentCreated') yield event.payload.experimentId;
    const last = events.at(-1);
    if (last === undefined) return;
    after = last.globalPosition;
  }
}

/** Events of several streams by global position, a page of each in memory. */
async function* inLogOrder(store: EventStore, streams: readonly string[]): AsyncGenerator<AnyStoredEvent> {
  const readers = streams.map((stream) => pages(store, stream));
  const heads = await Promise.all(readers.map((reader) => reader.next()));
  for (;;) {
    let earliest = -1;
    let position: bigint | null = null;
    heads.forEach((head, i) => {
      if (head.done) return;
      if (position === null || head.value.globalPosition < position) {
        position = head.value.globalPosition;
        earliest = i;
      }
    });
    const head = heads[earliest];
    const reader = readers[earliest];
    if (head === undefined || head.done || reader === undefined) return;
    yield head.value;
    heads[earliest] = await reader.next();
  }
}

async function* pages(store: EventStore, stream: string): AsyncGenerator<AnyStoredEvent, undefined> {
  for (let after = 0n; ;) {
    const events = await store.readStream(stream, { after, limit: PAGE });
    yield* events;
    const last = events.at(-1);
    if (last === undefined || events.length < PAGE) return undefined;
    after = last.streamVersion;
  }
}
