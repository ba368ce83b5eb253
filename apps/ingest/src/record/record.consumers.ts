import { SYSTEM_TENANT_ID, type EventStore } from '#hotbed/contracts';
import type { LogListener } from '#hotbed/event-store';
import { IngestConsumer, type Broker, type IngestMessage } from '#hotbed/messaging';
import type { ArrivedRecord } from './record.decider';
import type { TakeRecordsHandler } from './take-records.handler';

export interface RecordConsumersOptions {
  broker: Broker;
  events: EventStore;
  listener: LogListener;
  take: TakeRecordsHandler;
  maxBytes: number | undefined;
  onProblem: (line: string, error?: unknown) => void;
}

const BATCH = 500;
/** Characters of a producer's key. */
const KEY_LIMIT = 256;
const POLL_MS = 2_000;

/** Follows the tenants of the log and consumes the ingest stream of each. */
export class RecordConsumers {
  private readonly consumers = new Map<string, IngestConsumer>();
  private readonly stopping = new AbortController();
  private loop: Promise<void> = Promise.resolve();

  constructor(private readonly options: RecordConsumersOptions) {}

  start(): void {
    this.loop = this.follow();
  }

  async stop(): Promise<void> {
    this.stopping.abort();
    await this.loop;
    await Promise.all([...this.consumers.values()].map((consumer) => consumer.stop()));
  }

  private async follow(): Promise<void> {
    const { events, listener, onProblem } = this.options;
    let after = 0n;
    while (!this.stopping.signal.aborted) {
      try {
        // The head first: what comes after it wakes this loop at once.
        const { position } = await events.head();
        const batch = await events.readAll({ after, limit: BATCH, categories: ['tenant'] });
        for (const event of batch) {
          if (event.type === 'TenantCreated') this.consume(event.payload.tenantId);
          after = event.globalPosition;
        }
        if (batch.length === 0) await listener.waitBeyond(position, POLL_MS, this.stopping.signal);
      } catch (error) {
        onProblem('tenants could not be read; trying again', error);
        await listener.waitBeyond(2n ** 62n, POLL_MS, this.stopping.signal);
      }
    }
  }

  private consume(tenantId: string): void {
    if (tenantId === SYSTEM_TENANT_ID || this.consumers.has(tenantId)) return;
    const { broker, take, maxBytes, onProblem } = this.options;
    const consumer = new IngestConsumer(
      broker,
      {
        tenantId,
        ...(maxBytes === undefined ? {} : { maxBytes }),
        handle: (messages) => take.takeBatch(messages.map(arrivedRecord)),
        reject: (message, error) => take.reject(arrivedRecord(message), error),
      },
      { onProblem },
    );
    this.consumers.set(tenantId, consumer);
    consumer.start().catch((error: unknown) => {
      this.consumers.delete(tenantId);
      onProblem(`the ingest stream of tenant ${tenantId} cannot be consumed; trying again`, error);
      if (!this.stopping.signal.aborted) setTimeout(() => this.consume(tenantId), POLL_MS).unref();
    });
  }
}

/**
 * Tenant and data stream come from the subject; a body that is no JSON is refused like any other wrong record, and so is
 * a key that cannot be kept.
 */
function arrivedRecord(message: IngestMessage): ArrivedRecord {
  const { tenantId, dataStreamId, key } = message;
  const arrived = { tenantId, dataStreamId, content: jsonOf(message.body), actor: `producer:${tenantId}` };
  if (key !== null && isStorableKey(key)) return { ...arrived, identity: { kind: 'key', key } };
  const identity = { kind: 'broker', generation: message.generation, sequence: message.sequence.toString() } as const;
  if (key === null) return { ...arrived, identity };
  const problem = { path: 'key', message: `Nats-Msg-Id: expected 1..${KEY_LIMIT} characters without U+0000` };
  return { ...arrived, identity, problem };
}

function isStorableKey(key: string): boolean {
  return key.length > 0 && key.length <= KEY_LIMIT && !key.includes('\u0000') && key.isWellFormed();
}

function jsonOf(body: Uint8Array): unknown {
  try {
    return JSON.parse(new TextDecoder('utf-8', { fatal: true }).decode(body)) as unknown;
  } catch {
    return undefined;
  }
}
