import {
  InvalidInput,
  type AnyStoredEvent,
  type DatumPayload,
  type RolloutDatum,
  type RolloutsCompleted,
  type RolloutsRequested,
} from '#hotbed/contracts';
import type { EventReads } from './event-reads';

export interface ReferredRollouts {
  prompt: RolloutsRequested['prompts'][number];
  completed: RolloutsCompleted;
}

/** The rollouts that an operation's datums refer to, read before the first is used. */
export interface References {
  /** @throws InvalidInput naming `path` when the reference leads nowhere. */
  of(datum: RolloutDatum, path: string): ReferredRollouts;
}

/** Below this many unneeded events between two needed ones, one range read is cheaper than two reads. */
const READ_THROUGH = 64n;

export async function readReferences(
  datums: readonly DatumPayload[],
  acceptedAt: bigint,
  events: EventReads,
): Promise<References> {
  const found = new Map<string, AnyStoredEvent>();
  for (const [streamId, versions] of versionsByStream(datums)) {
    for (const [first, last] of ranges(versions)) {
      for (const event of await readRange(events, streamId, first, last)) {
        if (event.globalPosition < acceptedAt) found.set(keyOf(streamId, event.streamVersion), event);
      }
    }
  }
  return { of: (datum, path) => lookUp(datum, path, found) };
}

function lookUp(datum: RolloutDatum, path: string, found: ReadonlyMap<string, AnyStoredEvent>): ReferredRollouts {
  const request = found.get(keyOf(datum.streamId, BigInt(datum.requestVersion)));
  if (request?.type !== 'RolloutsRequested') {
    throw refused(`${path}.requestVersion`, `${datum.streamId} has no RolloutsRequested at ${datum.requestVersion}`);
  }
  const completed = found.get(keyOf(datum.streamId, BigInt(datum.completedVersion)));
  if (completed?.type !== 'RolloutsCompleted') {
    throw refused(
      `${path}.completedVersion`,
      `${datum.streamId} has no RolloutsCompleted at ${datum.completedVersion}`,
    );
  }
  const { requestId, requestVersion, promptIndex } = completed.payload;
  if (requestId !== request.payload.requestId || requestVersion !== datum.requestVersion) {
    throw refused(`${path}.completedVersion`, `answers request ${requestId}, not ${request.payload.requestId}`);
  }
  if (promptIndex !== datum.promptIndex) {
    throw refused(`${path}.promptIndex`, `the completions are of prompt ${promptIndex}, not ${datum.promptIndex}`);
  }
  const prompt = request.payload.prompts.find((p) => p.promptIndex === datum.promptIndex);
  if (prompt === undefined) throw refused(`${path}.promptIndex`, `the request has no prompt ${datum.promptIndex}`);
  return { prompt, completed: completed.payload };
}

function versionsByStream(datums: readonly DatumPayload[]): Map<string, bigint[]> {
  const byStream = new Map<string, Set<bigint>>();
  for (const datum of datums) {
    if (datum.source !== 'rollouts') continue;
    const versions = byStream.get(datum.streamId) ?? new Set<bigint>();
    versions.add(BigInt(datum.requestVersion)).add(BigInt(datum.completedVersion));
    byStream.set(datum.streamId, versions);
  }
  return new Map([...byStream].map(([id, set]) => [id, [...set].sort((a, b) => (a < b ? -1 : 1))]));
}

/** Ascending versions as few inclusive ranges. */
function ranges(versions: readonly bigint[]): [bigint, bigint][] {
  const result: [bigint, bigint][] = [];
  for (const version of versions) {
    const open = result.at(-1);
    if (open !== undefined && version - open[1] <= READ_THROUGH) open[1] = version;
    else result.push([version, version]);
  }
  return result;
}

async function readRange(events: EventReads, streamId: string, first: bigint, last: bigint): Promise<AnyStoredEvent[]> {
  if (first < 1n) return [];
  const read: AnyStoredEvent[] = [];
  let after = first - 1n;
  while (after < last) {
    const page = await events.readStream(streamId, { after, upTo: last });
    const end = page.at(-1);
    if (end === undefined) break;
    read.push(...page);
    after = end.streamVersion;
  }
  return read;
}

const keyOf = (streamId: string, version: bigint): string => `${streamId}@${version}`;

function refused(path: string, message: string): InvalidInput {
  return new InvalidInput([{ path, message }]);
}
