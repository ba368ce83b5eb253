import type { AdapterSpecPayload, AnyNewEvent, AnyStoredEvent, EventType, PayloadOf } from '#hotbed/contracts';

/** What a decider must know of an adapter to accept operations on it. */
export type Adapter =
  | { status: 'absent' }
  | {
      status: 'open';
      adapterId: string;
      tenantId: string;
      name: string;
      spec: AdapterSpecPayload;
      baseDigest: string;
      numericsId: string;
      /** The experiment that owns it; null where clients train it. */
      experimentId: string | null;
      /** Operation index that the next accepted operation takes. */
      nextOpIndex: bigint;
    };

export type OpenAdapter = Extract<Adapter, { status: 'open' }>;

export const NO_ADAPTER: Adapter = { status: 'absent' };

/** Folds the accepted sequence; results (applied, failed, checkpointed) change nothing that is decided here. */
export function evolveAdapter(
  adapter: Adapter,
  event: { type: EventType; tenantId: string; payload: PayloadOf<EventType> } | AnyNewEvent | AnyStoredEvent,
): Adapter {
  if (event.type === 'AdapterCreated') {
    const created = event.payload as PayloadOf<'AdapterCreated'>;
    return {
      status: 'open',
      adapterId: created.adapterId,
      tenantId: event.tenantId,
      name: created.name,
      spec: created.spec,
      baseDigest: created.baseDigest,
      numericsId: created.numericsId,
      experimentId: created.experimentId,
      nextOpIndex: 1n,
    };
  }
  if (event.type === 'OperationAccepted' && adapter.status === 'open') {
    return { ...adapter, nextOpIndex: BigInt((event.payload as PayloadOf<'OperationAccepted'>).opIndex) + 1n };
  }
  return adapter;
}
