import {
  AckPolicy,
  DeliverPolicy,
  DiscardPolicy,
  NatsError,
  RetentionPolicy,
  StorageType,
  type StreamInfo,
} from 'nats';
import {
  CATEGORIES,
  ingestStreamName,
  InvalidInput,
  JETSTREAM_OF,
  newId,
  Unavailable,
  type Category,
  type JetStreamName,
} from '#hotbed/contracts';
import { text, type Broker } from './broker';

export interface StreamLimits {
  maxBytes: number;
  /** 0 = no limit. */
  maxAgeMs: number;
}

export const EVENT_STREAM_LIMITS: StreamLimits = { maxBytes: 256 * 1024 * 1024, maxAgeMs: 7 * 24 * 3600 * 1000 };
export const INGEST_STREAM_BYTES = 64 * 1024 * 1024;

/** Every JetStream stream that the relay writes. */
export const EVENT_STREAMS = [...new Set(Object.values(JETSTREAM_OF))] as JetStreamName[];

export function categoriesOf(stream: JetStreamName): Category[] {
  return CATEGORIES.filter((category) => JETSTREAM_OF[category] === stream);
}

const GENERATION = /^generation ([0-9A-Za-z-]+)$/;

/** A stream's generation is kept in its description: a stream made anew by anyone else has none of ours. */
export function generationOf(info: StreamInfo): string | null {
  return GENERATION.exec(info.config.description ?? '')?.[1] ?? null;
}

const NANOS = 1_000_000;

export function eventStreamConfig(stream: JetStreamName, generation: string, limits: StreamLimits) {
  return {
    name: stream,
    description: `generation ${generation}`,
    subjects: categoriesOf(stream).map((category) => `hotbed.v1.${category}.>`),
    storage: StorageType.File,
    retention: RetentionPolicy.Limits,
    discard: DiscardPolicy.Old,
    max_bytes: limits.maxBytes,
    max_age: limits.maxAgeMs * NANOS,
    num_replicas: 1,
    duplicate_window: 120_000 * NANOS,
  };
}

/**
 * A tenant's inbox on the broker, made where missing. Full = refused to the producer, never dropped. A changed limit is
 * applied. @returns its generation, part of the identity of records without a producer key
 */
export async function ensureIngestStream(
  broker: Broker,
  tenantId: string,
  maxBytes = INGEST_STREAM_BYTES,
): Promise<{ name: string; generation: string }> {
  const name = ingestStreamName(tenantId);
  const manager = await broker.streams;
  const config = (generation: string) => ({
    name,
    description: `generation ${generation}`,
    subjects: [`hotbed.ingest.${tenantId}.*`],
    storage: StorageType.File,
    retention: RetentionPolicy.Limits,
    discard: DiscardPolicy.New,
    max_bytes: maxBytes,
    max_age: 0,
    num_replicas: 1,
    duplicate_window: 120_000 * NANOS,
  });
  const info = await streamInfo(broker, name);
  if (info === null) {
    const generation = newId();
    await manager.streams.add(config(generation));
    return { name, generation };
  }
  const generation = generationOf(info) ?? newId();
  const wanted = config(generation);
  if (info.config.max_bytes !== maxBytes || info.config.description !== wanted.description) {
    await manager.streams.update(name, { ...info.config, max_bytes: maxBytes, description: wanted.description });
  }
  return { name, generation };
}

/** null where there is no such stream. @throws Unavailable */
export async function streamInfo(broker: Broker, name: string): Promise<StreamInfo | null> {
  broker.assertConnected();
  try {
    return await (await broker.streams).streams.info(name);
  } catch (error) {
    if (isNotFound(error)) return null;
    throw new Unavailable('broker_unavailable', `NATS says nothing about stream ${name}: ${text(error)}`, {
      cause: error,
    });
  }
}

export function isNotFound(error: unknown): boolean {
  return error instanceof NatsError && error.api_error?.code === 404;
}

export interface ConsumerSettings {
  stream: string;
  durable: string;
  filterSubject: string;
  ackWaitMs: number;
  deliver: 'all' | 'new';
  /** The server removes the consumer when nobody has pulled for so long; absent = never. */
  inactiveThresholdMs?: number;
}

/** Messages delivered and not yet acknowledged; parked and delayed ones must not use up the room of other lanes. */
const MAX_ACK_PENDING = 65_536;

/**
 * The durable consumer under its stable name. What exists with another configuration is refused, never silently used:
 * an old filter would hide messages. @throws InvalidInput `consumer.<field>`; Unavailable while the stream is missing
 */
export async function ensureConsumer(broker: Broker, settings: ConsumerSettings): Promise<void> {
  const wanted = {
    durable_name: settings.durable,
    ack_policy: AckPolicy.Explicit,
    ack_wait: settings.ackWaitMs * NANOS,
    deliver_policy: settings.deliver === 'all' ? DeliverPolicy.All : DeliverPolicy.New,
    filter_subject: settings.filterSubject,
    max_deliver: -1,
    max_ack_pending: MAX_ACK_PENDING,
    ...(settings.inactiveThresholdMs === undefined ? {} : { inactive_threshold: settings.inactiveThresholdMs * NANOS }),
  };
  const { consumers } = await broker.streams;
  broker.assertConnected();
  let actual;
  try {
    actual = (await consumers.info(settings.stream, settings.durable)).config;
  } catch (error) {
    if (!isNotFound(error)) throw unavailable(settings, error);
    try {
      actual = (await consumers.add(settings.stream, wanted)).config;
    } catch (addError) {
      throw unavailable(settings, addError);
    }
  }
  const drift = (Object.keys(wanted) as (keyof typeof wanted)[]).filter((field) => actual[field] !== wanted[field]);
  if (drift.length === 0) return;
  throw new InvalidInput(
    drift.map((field) => ({
      path: `consumer.${field}`,
      message: `consumer ${settings.durable} of ${settings.stream} has ${String(actual[field])}, the code wants ${String(wanted[field])}; delete the consumer (its lanes are kept in PostgreSQL) or give it a new name`,
    })),
  );
}

function unavailable(settings: ConsumerSettings, error: unknown): Unavailable {
  return new Unavailable(
    'consumer_unavailable',
    `consumer ${settings.durable} of ${settings.stream} is not available: ${text(error)}`,
    { cause: error },
  );
}
