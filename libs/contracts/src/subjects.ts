import type { AppName, Category, EventType } from './event-catalog';
import { parseStreamId } from './stream-id';

/** Subject on which the relay publishes an event. Only ids stand in subjects, never names or user text. */
export function eventSubject(event: { streamId: string; tenantId: string; type: string }): string {
  const { category, key } = parseStreamId(event.streamId);
  return `hotbed.v1.${category}.${event.tenantId}.${key}.${event.type}`;
}

/** Filter over one category, optionally one event type. */
export function eventFilter(category: Category, type: EventType | '*' = '*'): string {
  return `hotbed.v1.${category}.*.*.${type}`;
}

/** Subject on which a tenant's producer publishes records. */
export function ingestSubject(tenantId: string, dataStreamId: string): string {
  return `hotbed.ingest.${tenantId}.${dataStreamId}`;
}

/** JetStream stream of one tenant's producers. */
export function ingestStreamName(tenantId: string): string {
  return `HOTBED_INGEST_${tenantId}`;
}

/** Request/reply: `hotbed.rpc.<tenant id>.<app>.<command>`. The tenant is taken from the subject, never from the body. */
export function rpcSubject(tenantId: string, app: AppName, command: string): string {
  return `hotbed.rpc.${tenantId}.${app}.${command}`;
}
