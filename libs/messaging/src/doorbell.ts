import { eventFilter, isEventType, JETSTREAM_OF, type Category, type EventType } from '#hotbed/contracts';
import type { Broker } from './broker';
import { ensureConsumer } from './event-streams';
import { PullLoop } from './pull-loop';

export interface Ring {
  type: EventType;
  tenantId: string;
  streamId: string;
  streamVersion: bigint;
}

export interface DoorbellDefinition {
  /** Stable name of who listens, for example `worker-1`: its consumers are used again after a restart. */
  listener: string;
  category: Category;
  /** One type, or all of the category when absent. */
  type?: EventType;
  ring: (ring: Ring) => void;
  onProblem?: (line: string, error?: unknown) => void;
}

const UNUSED_AFTER_MS = 24 * 3600 * 1000;

/**
 * Tells a worker that there is work, and is acknowledged on receipt: the work list is in PostgreSQL, so a lost ring
 * costs a poll interval and nothing else. Only rings from now on are heard.
 */
export class Doorbell {
  private readonly loop: PullLoop;

  constructor(broker: Broker, definition: DoorbellDefinition) {
    const { listener, category, type, ring } = definition;
    const onProblem = definition.onProblem ?? (() => undefined);
    const stream = JETSTREAM_OF[category];
    const durable = `doorbell-${listener}-${category}${type === undefined ? '' : `-${type}`}`;
    this.loop = new PullLoop({
      broker,
      stream,
      durable,
      ackWaitMs: 30_000,
      capacity: 256,
      batch: 256,
      ensure: () =>
        ensureConsumer(broker, {
          stream,
          durable,
          filterSubject: eventFilter(category, type),
          ackWaitMs: 30_000,
          deliver: 'new',
          inactiveThresholdMs: UNUSED_AFTER_MS,
        }),
      onMessage: (message) => {
        message.ack();
        this.loop.release(message);
        const eventType = message.headers?.get('ce-type') ?? '';
        const version = message.headers?.get('ce-streamversion') ?? '';
        if (!isEventType(eventType) || !/^\d+$/.test(version)) return;
        ring({
          type: eventType,
          tenantId: message.subject.split('.')[3] ?? '',
          streamId: message.headers?.get('ce-streamid') ?? '',
          streamVersion: BigInt(version),
        });
      },
      onProblem: (line, error) => onProblem(`${durable}: ${line}`, error),
    });
  }

  start(): Promise<void> {
    return this.loop.start();
  }

  stop(): void {
    this.loop.end();
  }
}
