import { checkColumns } from './check-columns';
import { hashOf, hex, sameBytes, sha256 } from './hash-rule';
import type { LogProblem, LogRow, SeenHead, VerifyResult } from './log-row';
import { nameBreak, problem } from './name-break';

export interface VerifyOptions {
  /** A head seen earlier: the log must still contain it. */
  expectHead?: SeenHead;
  /** The head that the log itself keeps: it must be the last row. */
  recordedHead?: SeenHead;
  /** Reads a blob; null = it is missing. With it, payloads that lie in the blob store are checked, too. */
  readBlob?: (tenantId: string, digest: string) => Promise<Uint8Array | null>;
}

/**
 * Verifies a whole log, in order of position, and returns the first problem in words. Shares no code with the writer.
 *
 * 1. Positions run 1, 2, 3, ... without a gap; versions of every stream too.
 * 2. Every hash follows from the row's bytes and the hash before it.
 * 3. Every other column says what the hashed bytes say.
 * 4. Heads that were seen are still part of the log.
 */
export async function verifyLog(
  rows: AsyncIterable<LogRow> | Iterable<LogRow>,
  options: VerifyOptions = {},
): Promise<VerifyResult> {
  const chain = new Chain(options);
  let row: LogRow | null = null;
  for await (const next of rows) {
    const found = row === null ? null : (chain.take(row, next) ?? (await checkBlob(row, options)));
    if (found !== null) return { ok: false, problem: found };
    row = next;
  }
  const found = (row === null ? null : (chain.take(row, null) ?? (await checkBlob(row, options)))) ?? chain.end();
  return found === null ? { ok: true, head: chain.head } : { ok: false, problem: found };
}

/** A payload over the size limit is `{"$blob": {digest, size, mediaType}}`: the digest is hashed, the blob must match. */
async function checkBlob(row: LogRow, { readBlob }: VerifyOptions): Promise<LogProblem | null> {
  if (readBlob === undefined || row.data === null) return null;
  const blob = (JSON.parse(row.data) as { $blob?: { digest: string; size: number } } | null)?.$blob;
  if (blob === undefined) return null;
  const bytes = await readBlob(row.tenantId, blob.digest);
  if (bytes === null) return problem('deleted', row.globalPosition, `its payload, blob ${blob.digest}, is missing`);
  if (bytes.length === blob.size && hex(sha256(bytes)) === blob.digest) return null;
  return problem('changed', row.globalPosition, `its payload, blob ${blob.digest}, holds other bytes`);
}

class Chain {
  private position = 0n;
  private hash: Uint8Array = new Uint8Array(32);
  private recordedAtMs: bigint | null = null;
  private readonly versions = new Map<string, bigint>();

  constructor(private readonly options: VerifyOptions) {}

  get head(): SeenHead {
    return { position: this.position, hash: hex(this.hash) };
  }

  take(row: LogRow, next: LogRow | null): LogProblem | null {
    const early = this.checkHead(this.options.expectHead, 'rewritten');
    if (early !== null) return early;
    const expected = this.position + 1n;
    if (row.globalPosition > expected) {
      const last = row.globalPosition - 1n;
      return problem('deleted', expected, last === expected ? 'its row is missing' : `rows up to ${last} are missing`);
    }
    if (row.globalPosition < expected) return problem('inserted', row.globalPosition, 'there are two rows');
    if (!sameBytes(row.prevHash, this.hash) || !sameBytes(hashOf(row, row.globalPosition, this.hash), row.eventHash)) {
      return nameBreak(row, next, this.hash);
    }
    if (!sameBytes(sha256(row.payloadBytes), row.payloadHash)) {
      return problem('changed', expected, 'its column for the payload hash does not match its payload');
    }
    const contradiction = checkColumns(row);
    if (contradiction !== null) return problem('changed', expected, contradiction);
    const version = (this.versions.get(row.streamId) ?? 0n) + 1n;
    if (row.streamVersion !== version) {
      return problem('inconsistent', expected, `${row.streamId} goes on at ${row.streamVersion} instead of ${version}`);
    }
    if (this.recordedAtMs !== null && row.recordedAtMs < this.recordedAtMs) {
      return problem('inconsistent', expected, 'it was recorded before the row before it');
    }
    this.versions.set(row.streamId, version);
    this.recordedAtMs = row.recordedAtMs;
    this.position = expected;
    this.hash = row.eventHash;
    return null;
  }

  end(): LogProblem | null {
    const { expectHead, recordedHead } = this.options;
    return (
      this.checkHead(expectHead, 'rewritten') ??
      this.checkCut(expectHead, 'a head that was seen') ??
      this.checkCut(recordedHead, "the log's own head") ??
      this.checkHead(recordedHead, 'changed') ??
      (recordedHead !== undefined && recordedHead.position < this.position
        ? problem(
            'inserted',
            recordedHead.position + 1n,
            `rows stand behind the log's own head ${recordedHead.position}`,
          )
        : null)
    );
  }

  private checkHead(seen: SeenHead | undefined, kind: LogProblem['kind']): LogProblem | null {
    if (seen === undefined || seen.position !== this.position || seen.hash === hex(this.hash)) return null;
    return problem(kind, seen.position, `its hash is ${hex(this.hash)}, but ${seen.hash} was seen there`);
  }

  private checkCut(seen: SeenHead | undefined, what: string): LogProblem | null {
    if (seen === undefined || seen.position <= this.position) return null;
    return problem(
      'cut_tail',
      this.position + 1n,
      `the tail is cut: the log ends at ${this.position}, but ${what} stands at ${seen.position}`,
    );
  }
}
