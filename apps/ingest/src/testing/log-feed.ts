import { JETSTREAM_OF, newId, type EventStore, type JetStreamName } from '#hotbed/contracts';
import { categoriesOf, EventStreamWriter, type Broker } from '#hotbed/messaging';
import { setTimeout as delay } from 'node:timers/promises';

const PAUSE_MS = 5;

/** Carries the log to a broker of the test's own as it grows, in order, until it is closed. */
export class LogFeed {
  private closed = false;
  private failure: unknown = null;
  private readonly loops: Promise<void>[] = [];

  private constructor(private readonly store: EventStore) {}

  /** @param broker may write every event stream */
  static async open(store: EventStore, broker: Broker): Promise<LogFeed> {
    const feed = new LogFeed(store);
    const generation = newId();
    for (const stream of new Set(Object.values(JETSTREAM_OF))) {
      const writer = new EventStreamWriter(broker, stream);
      await writer.recreate(generation);
      feed.loops.push(feed.carry(stream, writer, generation).catch((error: unknown) => void (feed.failure ??= error)));
    }
    return feed;
  }

  /** @throws Error when the broker refused what was carried to it */
  async close(): Promise<void> {
    this.closed = true;
    await Promise.all(this.loops);
    if (this.failure !== null) throw new Error('the log could not be carried to the broker', { cause: this.failure });
  }

  private async carry(stream: JetStreamName, writer: EventStreamWriter, generation: string): Promise<void> {
    let [position, sequence] = [0n, 0];
    while (!this.closed) {
      const events = await this.store.readAll({ after: position, limit: 500, categories: categoriesOf(stream) });
      if (events.length === 0) {
        await delay(PAUSE_MS);
        continue;
      }
      const outcome = await writer.publish(events, generation, position, sequence);
      if (!outcome.ok) throw new Error(outcome.problem);
      position = outcome.lastPosition;
      sequence = outcome.lastSequence;
    }
  }
}
