import { isDeepStrictEqual } from 'node:util';
import {
  DomainError,
  IdempotencyConflict,
  LeaseLost,
  NameTaken,
  NotFound,
  OpIndexConflict,
  VersionConflict,
  assertStorable,
  parseStreamId,
  streamId as streamIdOf,
  type AppendItem,
  type AppendResult,
  type BlobStore,
} from '#hotbed/contracts';
import { encodeEvent, type EncodedEvent } from './encode-event';

/** One item, checked and turned into what es.append takes. */
export interface EncodedItem {
  sql: object;
  events: EncodedEvent[];
  /** Bytes of headers and payloads. */
  size: number;
}

export type ItemOutcome = { ok: AppendResult } | { error: Error };

/** @throws InvalidInput, Forbidden for bad events; TypeError for an item that contradicts itself (a bug of the caller) */
export async function encodeItem(item: AppendItem, blobs: BlobStore): Promise<EncodedItem> {
  assertConsistent(item);
  const perWrite = await Promise.all(
    item.writes.map((write) => Promise.all(write.events.map((event) => encodeEvent(event, write.streamId, blobs)))),
  );
  const events = perWrite.flat();
  assertHeadsMatchEvents(item, perWrite);
  if (item.idempotency) assertStorable(item.idempotency, 'idempotency');
  return {
    events,
    size: events.reduce((sum, event) => sum + event.headerBytes.length + event.payloadBytes.length, 0),
    sql: {
      writes: item.writes.map((write) => ({
        stream: write.streamId,
        category: parseStreamId(write.streamId).category,
        expected: String(write.expected),
        count: write.events.length,
      })),
      ids: events.map((event) => event.eventId),
      key: item.idempotency
        ? {
            tenant: item.idempotency.tenantId,
            key: item.idempotency.key,
            hash: item.idempotency.requestHash,
            answer: item.idempotency.answer ?? null,
          }
        : null,
      names: (item.names ?? []).map(({ tenantId, kind, name, id }) => ({ tenant: tenantId, kind, name, id })),
      heads: (item.heads ?? []).map((head) => encodeHead(head, item, perWrite)),
      requests: (item.requests ?? []).map((request) => encodeRequest(request, item, perWrite)),
    },
  };
}

function assertConsistent(item: AppendItem): void {
  if (item.writes.length === 0 || item.writes.some((write) => write.events.length === 0)) {
    throw new TypeError('an item writes at least one event to each of its streams');
  }
  if (new Set(item.writes.map((write) => write.streamId)).size !== item.writes.length) {
    throw new TypeError('an item names a stream twice; put all its events into one write');
  }
}

type Head = NonNullable<AppendItem['heads']>[number];
type Request = NonNullable<AppendItem['requests']>[number];

function encodeHead(head: Head, item: AppendItem, perWrite: EncodedEvent[][]): object {
  switch (head.change) {
    case 'create':
      return { change: 'create', adapter: head.adapterId };
    case 'accept':
      return {
        change: 'accept',
        adapter: head.adapterId,
        first: head.first.toString(),
        last: head.last.toString(),
        versions: offsetsOf(head, item, perWrite),
      };
    case 'apply':
      return {
        change: 'apply',
        adapter: head.adapterId,
        op: head.opIndex.toString(),
        epoch: head.leaseEpoch.toString(),
      };
  }
}

function encodeRequest(request: Request, item: AppendItem, perWrite: EncodedEvent[][]): object {
  if (request.change === 'answer') {
    return { change: 'answer', request: request.requestId, prompts: [request.promptIndex] };
  }
  const write = item.writes.findIndex((w) => w.streamId === request.streamId);
  const offset = (perWrite[write] ?? []).findIndex(
    (event) =>
      event.type === 'RolloutsRequested' && (event.payload as { requestId: string }).requestId === request.requestId,
  );
  if (offset < 0) {
    throw new TypeError(`request ${request.requestId} is opened without its RolloutsRequested in ${request.streamId}`);
  }
  return {
    change: 'open',
    request: request.requestId,
    prompts: request.promptIndexes,
    stream: request.streamId,
    offset,
    tenant: request.tenantId,
    adapter: request.adapterId,
    op: request.opIndex?.toString() ?? null,
  };
}

/** Where the OperationAccepted events first..last stand in the write to their adapter's stream. */
function offsetsOf(head: Extract<Head, { change: 'accept' }>, item: AppendItem, perWrite: EncodedEvent[][]): number[] {
  const write = item.writes.findIndex((w) => w.streamId === streamIdOf('adapter', head.adapterId));
  const events = perWrite[write] ?? [];
  return opIndexesOf(head).map((opIndex) =>
    events.findIndex(
      (event) => event.type === 'OperationAccepted' && (event.payload as OperationRef).opIndex === opIndex.toString(),
    ),
  );
}

interface OperationRef {
  adapterId: string;
  opIndex: string;
}

function opIndexesOf(head: Head): bigint[] {
  if (head.change === 'create') return [0n];
  if (head.change === 'apply') return [head.opIndex];
  return Array.from({ length: Number(head.last - head.first) + 1 }, (_, i) => head.first + BigInt(i));
}

const CHANGE_OF: Readonly<Record<string, Head['change']>> = {
  AdapterCreated: 'create',
  OperationAccepted: 'accept',
  OperationApplied: 'apply',
  OperationFailed: 'apply',
};

/** The operation indices that the function checks are those that are hashed, each once. */
function assertHeadsMatchEvents(item: AppendItem, perWrite: EncodedEvent[][]): void {
  const claimed = (item.heads ?? []).flatMap((head) =>
    opIndexesOf(head).map((opIndex) => `${head.change} ${head.adapterId} ${opIndex}`),
  );
  const hashed = perWrite.flat().flatMap((event) => {
    const change = CHANGE_OF[event.type];
    const { adapterId, opIndex = '0' } = event.payload as OperationRef;
    return change === undefined ? [] : [`${change} ${adapterId} ${opIndex}`];
  });
  if (!isDeepStrictEqual(claimed.sort(), hashed.sort())) {
    throw new TypeError(`adapter head changes (${claimed.join(', ')}) and events (${hashed.join(', ')}) differ`);
  }
}

/** Parameters of `SELECT es.append($1, $2, $3)`. */
export function appendParameters(items: readonly EncodedItem[]): unknown[] {
  const events = items.flatMap((item) => item.events);
  return [
    JSON.stringify(items.map((item) => item.sql)),
    events.map((event) => event.headerBytes),
    events.map((event) => event.payloadBytes),
  ];
}

export const APPEND_SQL = 'SELECT es.append($1::jsonb, $2::bytea[], $3::bytea[]) AS result';

/** What es.append returns. */
export interface AppendReply {
  base: string;
  items: (
    | { streams: { stream: string; first: string; last: string }[]; offset: number; count: number }
    | { answer: unknown }
    | { error: Record<string, string> & { code: string } }
  )[];
}

/** One outcome per item, in order. */
export function readOutcomes(result: AppendReply): ItemOutcome[] {
  const base = BigInt(result.base);
  return result.items.map((item): ItemOutcome => {
    if ('error' in item) return { error: refusal(item.error) };
    if ('answer' in item) return { ok: { outcome: 'replayed', answer: item.answer } };
    const firstPosition = base + BigInt(item.offset) + 1n;
    return {
      ok: {
        outcome: 'appended',
        streams: item.streams.map(({ stream, first, last }) => ({
          streamId: stream,
          firstVersion: BigInt(first),
          lastVersion: BigInt(last),
        })),
        firstPosition,
        lastPosition: firstPosition + BigInt(item.count) - 1n,
      },
    };
  });
}

function refusal(error: Record<string, string> & { code: string }): Error {
  const field = (name: string): string => error[name] ?? '';
  const conflict = (message: string, context: Record<string, string | number>): DomainError =>
    new DomainError('Conflict', error.code, message, { context });
  switch (error.code) {
    case 'version_conflict':
      return new VersionConflict(field('stream'), field('expected'), field('actual'));
    case 'idempotency_conflict':
      return new IdempotencyConflict(field('key'));
    case 'name_taken':
      return new NameTaken(field('kind'), field('name'));
    case 'op_index_conflict':
      return new OpIndexConflict(field('adapter'), field('proposed'), field('next'));
    case 'lease_lost':
      return new LeaseLost(field('resource'), field('epoch'));
    case 'adapter_not_found':
      return new NotFound('adapter', field('adapter'));
    case 'adapter_exists':
      return conflict(`adapter ${field('adapter')} exists already`, { adapterId: field('adapter') });
    case 'event_exists':
      return conflict(`event ${field('event')} is in the log already`, { eventId: field('event') });
    case 'request_not_found':
      return new NotFound('request', `${field('request')}/${field('prompt')}`);
    case 'request_exists':
    case 'request_answered':
      return conflict(
        `prompt ${field('prompt')} of request ${field('request')} was ${error.code === 'request_exists' ? 'asked' : 'answered'} before`,
        { requestId: field('request'), promptIndex: Number(field('prompt')) },
      );
    default:
      return new Error(`es.append refused with an unknown code: ${JSON.stringify(error)}`);
  }
}
