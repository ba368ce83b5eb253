/** One row of the log as it lies in the database or in an export; nothing is trusted. */
export interface LogRow {
  globalPosition: bigint;
  eventId: string;
  streamId: string;
  streamVersion: bigint;
  category: string;
  type: string;
  schemaVersion: number;
  tenantId: string;
  occurredAtMs: bigint;
  recordedAtMs: bigint;
  actor: string;
  correlationId: string;
  causationId: string | null;
  headerBytes: Uint8Array;
  payloadBytes: Uint8Array;
  /** The query copy as JSON text; null where the payload is encrypted. */
  data: string | null;
  payloadHash: Uint8Array;
  prevHash: Uint8Array;
  eventHash: Uint8Array;
}

/** A head of the log that somebody has seen: position and hex hash. */
export interface SeenHead {
  position: bigint;
  hash: string;
}

export type LogProblemKind = 'changed' | 'deleted' | 'inserted' | 'swapped' | 'cut_tail' | 'rewritten' | 'inconsistent';

export interface LogProblem {
  kind: LogProblemKind;
  position: bigint;
  /** One sentence for a person. */
  message: string;
}

export type VerifyResult = { ok: true; head: SeenHead } | { ok: false; problem: LogProblem };

/** Reads `<position>:<64 hex digits>`, as `hotbed up` prints it. @throws Error that says what was expected */
export function parseSeenHead(text: string): SeenHead {
  const match = /^(0|[1-9][0-9]{0,18}):([0-9a-f]{64})$/.exec(text.trim().toLowerCase());
  if (match === null) throw new Error(`"${text}" is no head of a log; expected <position>:<64 hex digits>`);
  return { position: BigInt(match[1]!), hash: match[2]! };
}
