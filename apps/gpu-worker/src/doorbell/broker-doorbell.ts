import type { Category, EventType } from '#hotbed/contracts';
import { Broker, Doorbell } from '#hotbed/messaging';
import type { Logger, NatsConfig } from '#hotbed/runtime';
import { pause, retryDelayMs } from '../retry-delay';

export interface BrokerDoorbellOptions {
  nats: NatsConfig;
  /** Stable name of the worker: its consumers are used again after a restart. */
  listener: string;
  ring: () => void;
  logger: Logger;
}

/** What a worker is rung for. */
const RINGS: readonly { category: Category; type: EventType }[] = [
  { category: 'adapter', type: 'OperationAccepted' },
  { category: 'rollouts', type: 'RolloutsRequested' },
];

/**
 * Rings from JetStream. The work list is in PostgreSQL, so a broker that is away costs a little time and nothing else:
 * the worker starts without it, and this connects whenever it can.
 */
export class BrokerDoorbell {
  private readonly stopping = new AbortController();
  private readonly connecting: Promise<void>;
  private broker: Broker | null = null;
  private doorbells: Doorbell[] = [];

  constructor(private readonly options: BrokerDoorbellOptions) {
    this.connecting = this.connect();
  }

  async stop(): Promise<void> {
    this.stopping.abort();
    await this.connecting;
    for (const doorbell of this.doorbells) doorbell.stop();
    await this.broker?.close();
  }

  private async connect(): Promise<void> {
    const { nats, listener, ring, logger } = this.options;
    for (let attempt = 1; !this.stopping.signal.aborted; attempt++) {
      try {
        this.broker = await Broker.connect({
          ...nats,
          name: `gpu-worker ${listener}`,
          onStatus: (line) => logger.info({ line }, 'broker'),
        });
        break;
      } catch (error) {
        logger.warn({ err: error, attempt }, 'no doorbell from the broker; the work list is polled');
        await pause(retryDelayMs(attempt), this.stopping.signal);
      }
    }
    const { broker } = this;
    if (broker === null) return;
    this.doorbells = RINGS.map(
      ({ category, type }) =>
        new Doorbell(broker, {
          listener,
          category,
          type,
          ring,
          onProblem: (line, error) => logger.warn({ err: error, line }, 'doorbell'),
        }),
    );
    await Promise.all(this.doorbells.map((doorbell) => doorbell.start())).catch((error: unknown) => {
      logger.error({ err: error }, 'the doorbell does not work; the work list is polled');
    });
    ring();
  }
}
