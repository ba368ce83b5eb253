import {
  DomainError,
  EVENTS,
  InvalidInput,
  PAYLOAD_LIMIT_BYTES,
  canonicalJson,
  isEventType,
  parseInput,
  parseStreamId,
  type AnyNewEvent,
  type BlobStore,
  type EventHeader,
} from '#hotbed/contracts';

/** An event as the bytes that are hashed and stored. */
export interface EncodedEvent {
  eventId: string;
  type: string;
  /** The validated payload, defaults filled in. */
  payload: unknown;
  headerBytes: Buffer;
  payloadBytes: Buffer;
}

/**
 * Checks an event completely and turns it into bytes. A payload over the limit goes to the blob store as a whole.
 * @throws InvalidInput naming the field; Forbidden when the actor is an app that does not own the type
 */
export async function encodeEvent(event: AnyNewEvent, streamId: string, blobs: BlobStore): Promise<EncodedEvent> {
  const type: string = event.type;
  if (!isEventType(type)) throw new InvalidInput([{ path: 'type', message: `"${type}" is no known event type` }]);
  const { category } = parseStreamId(streamId);
  const known = EVENTS[type];
  if (known.category !== category) {
    throw new InvalidInput([
      { path: 'type', message: `${type} belongs to streams of category ${known.category}, not to ${streamId}` },
    ]);
  }
  assertOwner(event.actor, type, known.owners);
  if (!Number.isSafeInteger(event.occurredAtMs)) {
    throw new InvalidInput([{ path: 'occurredAtMs', message: 'expected whole milliseconds since 1970' }]);
  }
  const header: EventHeader = {
    eventId: event.eventId,
    streamId,
    category,
    type,
    schemaVersion: known.schemaVersion,
    tenantId: event.tenantId,
    occurredAtMs: event.occurredAtMs,
    actor: event.actor,
    correlationId: event.correlationId,
    causationId: event.causationId,
    keyId: null,
  };
  const payload: unknown = parseInput(known.schema, event.payload, type);
  const inlineBytes = canonicalJson(payload, type);
  return {
    eventId: event.eventId,
    type,
    payload,
    headerBytes: canonicalJson(header, 'header'),
    payloadBytes:
      inlineBytes.length <= PAYLOAD_LIMIT_BYTES
        ? inlineBytes
        : canonicalJson({ $blob: await blobs.put(event.tenantId, inlineBytes, 'application/json') }),
  };
}

function assertOwner(actor: string, type: string, owners: readonly string[]): void {
  if (!actor.startsWith('app:') || owners.includes(actor.slice('app:'.length))) return;
  throw new DomainError('Forbidden', 'not_owner', `${actor} may not append ${type}; its owners: ${owners.join(', ')}`, {
    context: { actor, type },
  });
}
