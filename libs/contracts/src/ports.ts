import type { BlobRef } from './blob-ref';
import type { Category } from './event-catalog';
import type { AnyNewEvent, AnyStoredEvent } from './stored-event';

/** What the writer believes about a stream: anything, that it is new, that it exists, or its exact version. */
export type ExpectedVersion = 'any' | 'none' | 'exists' | bigint;

export interface StreamWrite {
  streamId: string;
  expected: ExpectedVersion;
  events: readonly AnyNewEvent[];
}

/** A unique name within (tenant, kind), claimed in the same append. @throws NameTaken */
export interface NameClaim {
  tenantId: string;
  /** `data-stream`, `experiment`, `adapter`, `tenant`. */
  kind: string;
  name: string;
  /** Id that the name stands for. */
  id: string;
}

/** Change of `adapter_head`, checked under its row lock. */
export type AdapterHeadChange =
  | { change: 'create'; adapterId: string }
  /** `first..last` must begin at next_op_index. @throws OpIndexConflict with the next one. */
  | { change: 'accept'; adapterId: string; first: bigint; last: bigint }
  /** opIndex must be applied + 1 and the lease epoch current. @throws LeaseLost, OpIndexConflict */
  | { change: 'apply'; adapterId: string; opIndex: bigint; leaseEpoch: bigint };

/** Rows of the list of rollout requests without an answer (the worker's work list). */
export type RequestChange =
  | {
      change: 'open';
      requestId: string;
      promptIndexes: readonly number[];
      streamId: string;
      tenantId: string;
      adapterId: string | null;
      opIndex: bigint | null;
    }
  /** Refused with Conflict `request_answered` when it has been answered before. */
  | { change: 'answer'; requestId: string; promptIndex: number };

/** All or nothing: every write and every change of one item commits together, or none does. */
export interface AppendItem {
  writes: readonly StreamWrite[];
  names?: readonly NameClaim[];
  heads?: readonly AdapterHeadChange[];
  requests?: readonly RequestChange[];
  /** The same key with the same request hash returns the stored answer; other content is IdempotencyConflict. */
  idempotency?: { tenantId: string; key: string; requestHash: string; answer: unknown };
}

export interface AppendedStream {
  streamId: string;
  /** Stream version of the first and last event written. */
  firstVersion: bigint;
  lastVersion: bigint;
}

export type AppendResult =
  | { outcome: 'appended'; streams: AppendedStream[]; firstPosition: bigint; lastPosition: bigint }
  | { outcome: 'replayed'; answer: unknown };

/** The log's end: position and hash that an auditor may hold us to. */
export interface LogHead {
  position: bigint;
  /** Hex; 64 zeros for an empty log. */
  hash: string;
}

/** Appending and reading. Implemented by event-store. */
export interface EventStore {
  /** One item. Concurrent calls of one process are grouped into one round trip. @throws DomainError per item. */
  append(item: AppendItem): Promise<AppendResult>;
  /** Events of one stream with version > after, ascending. */
  readStream(streamId: string, options?: { after?: bigint; upTo?: bigint; limit?: number }): Promise<AnyStoredEvent[]>;
  /** Events of the whole log with position > after, ascending; optionally of some categories only. */
  readAll(options: { after: bigint; limit: number; categories?: readonly Category[] }): Promise<AnyStoredEvent[]>;
  head(): Promise<LogHead>;
  adapterHead(adapterId: string): Promise<{ nextOpIndex: bigint; appliedOpIndex: bigint } | null>;
  /** Id behind a name, or null. */
  idOfName(tenantId: string, kind: string, name: string): Promise<string | null>;
}

/** A transaction that the caller may put rows into beside the events that it appends. */
export interface UnitOfWork {
  /** Parameterised SQL on the transaction's own client, one at a time. */
  query<R extends object>(sql: string, parameters?: readonly unknown[]): Promise<R[]>;
  /** Appends inside this transaction. Call it last: it takes the log's head lock. */
  append(items: readonly AppendItem[]): Promise<AppendResult[]>;
}

/** One transaction around `work`; an error rolls back everything. */
export interface Transactions {
  run<T>(work: (uow: UnitOfWork) => Promise<T>): Promise<T>;
}

export type LaneHandler = (events: readonly AnyStoredEvent[], uow: UnitOfWork) => Promise<void>;

/**
 * Keeps order per (consumer, stream). `advance` handles every event of the stream in (cursor, throughVersion] in one
 * transaction with the cursor; at or below the cursor it does nothing. A parked lane is refused with Conflict
 * `lane_parked`.
 */
export interface ConsumerLane {
  advance(
    consumer: string,
    streamId: string,
    throughVersion: bigint,
    handler: LaneHandler,
  ): Promise<'handled' | 'up_to_date'>;
  /** Counts a failed attempt in PostgreSQL and returns how many there have been at this version. */
  recordFailure(consumer: string, streamId: string, version: bigint, error: string): Promise<number>;
}

/** Sets a poisoned message aside and parks its lane, in one transaction. */
export interface DeadLetter {
  park(consumer: string, streamId: string, version: bigint, error: string): Promise<void>;
  /** Lanes that an operator has opened again and that have not passed the event they were parked for. */
  resumed(consumer: string): Promise<ResumedLane[]>;
}

export interface ResumedLane {
  streamId: string;
  /** Of the event that the lane was parked for. */
  failedVersion: bigint;
  /** Newest version of the stream. */
  streamVersion: bigint;
}

/** Content-addressed files, separate per tenant, so that nobody learns whether another has the same content. */
export interface BlobStore {
  put(tenantId: string, bytes: Uint8Array, mediaType: string): Promise<BlobRef>;
  /** Takes over a complete file (rename; same file system). */
  adopt(tenantId: string, path: string, mediaType: string): Promise<BlobRef>;
  get(tenantId: string, digest: string): Promise<Buffer>;
  /** Path of an existing blob, for streaming or mapping. @throws NotFound */
  pathOf(tenantId: string, digest: string): Promise<string>;
  /** A path on the blob store's file system to write a file that `adopt` will take. */
  temporaryPath(): Promise<string>;
}
