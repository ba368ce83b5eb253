import type { Category, EventType, PayloadOf } from './event-catalog';

/** What is hashed beside the payload: exactly these fields, as canonical JSON. */
export interface EventHeader {
  eventId: string;
  streamId: string;
  category: Category;
  type: string;
  schemaVersion: number;
  tenantId: string;
  occurredAtMs: number;
  /** Who or what caused it: `app:orchestrator`, `key:<api key id>`, `producer:<tenant id>`. */
  actor: string;
  correlationId: string;
  causationId: string | null;
  /** Key that the payload is encrypted with; null = plain. */
  keyId: string | null;
}

/** An event to be appended. Time, ids and actor come in as arguments; deciders stay pure. */
export interface NewEvent<T extends EventType = EventType> {
  eventId: string;
  type: T;
  tenantId: string;
  occurredAtMs: number;
  actor: string;
  correlationId: string;
  causationId: string | null;
  payload: PayloadOf<T>;
}

/** NewEvent as a union over all types, so that `type` narrows `payload`. */
export type AnyNewEvent = { [T in EventType]: NewEvent<T> }[EventType];

/** An event of the log. Positions and versions begin at 1. */
export interface StoredEvent<T extends EventType = EventType> extends EventHeader {
  type: T;
  globalPosition: bigint;
  streamVersion: bigint;
  recordedAtMs: number;
  /** Hex. */
  eventHash: string;
  /** Decoded from payload_bytes (blob already resolved), checked against the type's schema. */
  payload: PayloadOf<T>;
}

/** StoredEvent as a union over all types, so that `type` narrows `payload`. */
export type AnyStoredEvent = { [T in EventType]: StoredEvent<T> }[EventType];
