import type { JsMsg } from 'nats';
import { ingestStreamName } from '#hotbed/contracts';
import { ackDecision, retryDelayMs } from './ack-decision';
import type { Broker } from './broker';
import { noObserver, type ConsumerObserver } from './consumer-observer';
import { ensureConsumer, ensureIngestStream, INGEST_STREAM_BYTES } from './event-streams';
import { confirmAck, PullLoop } from './pull-loop';
import { producerKeyOf } from './producer-key';

/** One record as its producer sent it. Nothing in it is checked; tenant and data stream come from the subject. */
export interface IngestMessage {
  tenantId: string;
  /** Last token of the subject: what the producer says; it may be no data stream at all. */
  dataStreamId: string;
  body: Uint8Array;
  /** The producer's key, else null; then generation and sequence are the record's identity. */
  key: string | null;
  generation: string;
  sequence: bigint;
  /** When the broker stored it. */
  receivedAtMs: number;
}

export interface IngestConsumerDefinition {
  tenantId: string;
  /**
   * Commits all messages (of one data stream, in the producer's order) or none. Resolved = every one of them is
   * committed, as RecordReceived or RecordRejected; it is then acknowledged and deleted from the broker.
   */
  handle: (messages: readonly IngestMessage[]) => Promise<void>;
  /** Commits that one message cannot be taken (RecordRejected), after a permanent error of `handle` or too many attempts. */
  reject: (message: IngestMessage, error: unknown) => Promise<void>;
  /** Most messages in one call; default 200. */
  batch?: number;
  maxBytes?: number;
  maxAttempts?: number;
}

export interface IngestConsumerPorts {
  observer?: ConsumerObserver;
  onProblem?: (line: string, error?: unknown) => void;
}

interface Held {
  message: JsMsg;
  record: IngestMessage;
}

const ACK_WAIT_MS = 10_000;
const DURABLE = 'ingest';
const CLEAN_UP_AFTER_MS = 250;

/** Consumes one tenant's ingest stream: data streams in parallel, each in order. */
export class IngestConsumer {
  private readonly queues = new Map<string, { waiting: Held[]; running: boolean }>();
  private readonly pauses = new Map<string, number>();
  private readonly loop: PullLoop;
  private readonly name: string;
  private readonly observer: ConsumerObserver;
  private readonly onProblem: (line: string, error?: unknown) => void;
  private generation = '';
  private working = 0;
  private stopping = false;
  private idle: (() => void) | undefined;
  private cleanUp: NodeJS.Timeout | undefined;
  private cleaned = 0;

  constructor(
    private readonly broker: Broker,
    private readonly definition: IngestConsumerDefinition,
    ports: IngestConsumerPorts = {},
  ) {
    this.name = ingestStreamName(definition.tenantId);
    this.observer = ports.observer ?? noObserver;
    this.onProblem = ports.onProblem ?? (() => undefined);
    const batch = definition.batch ?? 200;
    this.loop = new PullLoop({
      broker,
      stream: this.name,
      durable: DURABLE,
      ackWaitMs: ACK_WAIT_MS,
      capacity: batch * 2,
      batch: batch * 2,
      ensure: () => this.ensure(),
      onMessage: (message) => this.receive(message),
      onProblem: (line, error) => this.onProblem(`${this.name}: ${line}`, error),
    });
  }

  start(): Promise<void> {
    return this.loop.start();
  }

  /** Stops pulling, finishes what is being committed, gives back the rest. */
  async stop(): Promise<void> {
    this.stopping = true;
    this.loop.stop();
    clearTimeout(this.cleanUp);
    for (const queue of this.queues.values())
      for (const { message } of queue.waiting.splice(0)) this.giveBack(message, 0);
    if (this.working > 0) await new Promise<void>((resolve) => (this.idle = resolve));
    this.loop.end();
  }

  private async ensure(): Promise<void> {
    const { tenantId, maxBytes = INGEST_STREAM_BYTES } = this.definition;
    const { generation } = await ensureIngestStream(this.broker, tenantId, maxBytes);
    if (generation !== this.generation) this.cleaned = 0;
    this.generation = generation;
    await ensureConsumer(this.broker, {
      stream: this.name,
      durable: DURABLE,
      filterSubject: `hotbed.ingest.${tenantId}.*`,
      ackWaitMs: ACK_WAIT_MS,
      deliver: 'all',
    });
  }

  private receive(message: JsMsg): void {
    const dataStreamId = message.subject.split('.').at(-1) ?? '';
    const record: IngestMessage = {
      tenantId: this.definition.tenantId,
      dataStreamId,
      body: message.data,
      key: producerKeyOf(message.headers?.get('Nats-Msg-Id'), dataStreamId),
      generation: this.generation,
      sequence: BigInt(message.seq),
      receivedAtMs: Math.floor(message.info.timestampNanos / 1e6),
    };
    let queue = this.queues.get(dataStreamId);
    if (queue === undefined) this.queues.set(dataStreamId, (queue = { waiting: [], running: false }));
    queue.waiting.push({ message, record });
    if (!queue.running) {
      queue.running = true;
      // What arrives in the same turn goes into the same transaction.
      setImmediate(() => void this.run(dataStreamId, queue));
    }
  }

  private async run(dataStreamId: string, queue: { waiting: Held[]; running: boolean }): Promise<void> {
    this.working += 1;
    while (queue.waiting.length > 0 && !this.stopping) {
      const held = queue.waiting.splice(0, this.definition.batch ?? 200);
      held.sort((a, b) => a.message.seq - b.message.seq);
      await this.commit(dataStreamId, held);
    }
    queue.running = false;
    if (queue.waiting.length === 0) this.queues.delete(dataStreamId);
    this.working -= 1;
    if (this.working === 0) this.idle?.();
  }

  private async commit(dataStreamId: string, held: readonly Held[]): Promise<void> {
    const pauseMs = (this.pauses.get(dataStreamId) ?? 0) - Date.now();
    if (pauseMs > 0) return held.forEach(({ message }) => this.giveBack(message, pauseMs));
    try {
      await this.definition.handle(held.map(({ record }) => record));
      this.pauses.delete(dataStreamId);
      await this.acknowledge(held, 'handled');
    } catch (error) {
      if (held.length === 1 || ackDecision(error) === 'retry') return this.failed(dataStreamId, held, error);
      // One of them is bad: the others are committed without it, in order.
      for (const one of held) await this.commit(dataStreamId, [one]);
    }
  }

  private async failed(dataStreamId: string, held: readonly Held[], error: unknown): Promise<void> {
    const first = held[0]!;
    const attempt = first.message.info.deliveryCount;
    const hopeless = ackDecision(error) !== 'retry' || (attempt >= (this.definition.maxAttempts ?? 20) && isBug(error));
    if (held.length === 1 && hopeless) {
      try {
        await this.definition.reject(first.record, error);
        this.onProblem(`${this.name}: message ${first.message.seq} is rejected`, error);
        return await this.acknowledge(held, 'rejected');
      } catch (rejectError) {
        this.onProblem(`${this.name}: message ${first.message.seq} cannot even be rejected`, rejectError);
      }
    } else if (hopeless) {
      for (const one of held) await this.commit(dataStreamId, [one]);
      return;
    }
    const pauseMs = retryDelayMs(attempt, error);
    this.onProblem(`${this.name}: ${held.length} message(s) for ${dataStreamId} again in ${pauseMs} ms`, error);
    this.pauses.set(dataStreamId, Date.now() + pauseMs);
    for (const { message } of held) this.giveBack(message, pauseMs);
  }

  private giveBack(message: JsMsg, delayMs: number): void {
    message.nak(Math.ceil(delayMs));
    this.observer.settled(this.name, 'returned');
    this.loop.release(message);
  }

  private async acknowledge(held: readonly Held[], outcome: 'handled' | 'rejected'): Promise<void> {
    await Promise.all(
      held.map(async ({ message }) => {
        await confirmAck(this.broker, message, (line, error) => this.onProblem(`${this.name}: ${line}`, error));
        this.observer.settled(this.name, outcome);
        this.loop.release(message);
      }),
    );
    this.cleanUp ??= setTimeout(() => void this.deleteCommitted(), CLEAN_UP_AFTER_MS);
  }

  /** Deletes up to the acknowledgement floor: everything at or below it has committed. */
  private async deleteCommitted(): Promise<void> {
    this.cleanUp = undefined;
    if (this.stopping) return;
    try {
      const { streams, consumers } = await this.broker.streams;
      const floor = (await consumers.info(this.name, DURABLE)).ack_floor.stream_seq;
      if (floor <= this.cleaned) return;
      await streams.purge(this.name, { seq: floor + 1 });
      this.cleaned = floor;
    } catch (error) {
      this.onProblem(`${this.name}: committed messages are not yet deleted`, error);
    }
  }
}

/** Only what nobody foresaw is given up on; an unavailable database is waited for. */
function isBug(error: unknown): boolean {
  return !(error instanceof Error && 'kind' in error);
}
