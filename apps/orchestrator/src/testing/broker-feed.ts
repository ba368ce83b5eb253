import { JETSTREAM_OF, newId, type EventStore, type JetStreamName } from '#hotbed/contracts';
import { EventStreamWriter, categoriesOf, type Broker } from '#hotbed/messaging';

/** Carries events from a log to a broker of the test's own, in order. */
export class BrokerFeed {
  private constructor(
    private readonly store: EventStore,
    private readonly ends: Map<JetStreamName, { writer: EventStreamWriter; position: bigint; sequence: number }>,
    private readonly generation: string,
  ) {}

  /** @param broker may write every event stream */
  static async open(store: EventStore, broker: Broker): Promise<BrokerFeed> {
    const generation = newId();
    const ends: BrokerFeed['ends'] = new Map();
    for (const stream of new Set(Object.values(JETSTREAM_OF))) {
      const writer = new EventStreamWriter(broker, stream);
      await writer.recreate(generation);
      ends.set(stream, { writer, position: 0n, sequence: 0 });
    }
    return new BrokerFeed(store, ends, generation);
  }

  /** Publishes everything that is new in the log. @returns how much that was */
  async publishNew(): Promise<number> {
    let published = 0;
    for (const [stream, end] of this.ends) {
      const events = await this.store.readAll({ after: end.position, limit: 1000, categories: categoriesOf(stream) });
      if (events.length === 0) continue;
      const outcome = await end.writer.publish(events, this.generation, end.position, end.sequence);
      if (!outcome.ok) throw new Error(outcome.problem);
      end.position = outcome.lastPosition;
      end.sequence = outcome.lastSequence;
      published += events.length;
    }
    return published;
  }
}
