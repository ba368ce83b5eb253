import { streamId, type EventStore, type RecordContent, type RolloutsRequested } from '#hotbed/contracts';

type RecordRef = NonNullable<RolloutsRequested['prompts'][number]['record']>;

/** Records are read in aligned runs of this many versions: a batch's records are spread over their window. */
const CHUNK = 64n;
const CACHED_CHUNKS = 256;
const CACHED_REQUESTS = 256;

/** Requests and records that rewards refer to. Events never change, so a copy in memory is never stale. */
export class PastEvents {
  private readonly requests = new Map<string, Promise<RolloutsRequested | null>>();
  private readonly chunks = new Map<string, Promise<Map<string, RecordContent>>>();

  constructor(private readonly store: EventStore) {}

  /** The request at a version of a rollouts stream; null where that version is no request. */
  request(rolloutsStream: string, version: string): Promise<RolloutsRequested | null> {
    return cached(this.requests, CACHED_REQUESTS, `${rolloutsStream} ${version}`, async () => {
      const upTo = BigInt(version);
      const [event] = await this.store.readStream(rolloutsStream, { after: upTo - 1n, upTo });
      return event?.type === 'RolloutsRequested' ? event.payload : null;
    });
  }

  /** Content of a record; null where that version is no record. */
  async record({ dataStreamId, streamVersion }: RecordRef): Promise<RecordContent | null> {
    const chunk = (BigInt(streamVersion) - 1n) / CHUNK;
    const load = (): Promise<Map<string, RecordContent>> => this.loadChunk(dataStreamId, chunk);
    const key = `${dataStreamId} ${chunk}`;
    const known = (await cached(this.chunks, CACHED_CHUNKS, key, load)).get(streamVersion);
    if (known !== undefined) return known;
    // The stream may have grown into the chunk since it was read.
    this.chunks.delete(key);
    return (await cached(this.chunks, CACHED_CHUNKS, key, load)).get(streamVersion) ?? null;
  }

  private async loadChunk(dataStreamId: string, chunk: bigint): Promise<Map<string, RecordContent>> {
    const events = await this.store.readStream(streamId('data-stream', dataStreamId), {
      after: chunk * CHUNK,
      upTo: (chunk + 1n) * CHUNK,
    });
    return new Map(
      events.flatMap((event): [string, RecordContent][] =>
        event.type === 'RecordReceived' ? [[event.streamVersion.toString(), event.payload.content]] : [],
      ),
    );
  }
}

/** Least recently used goes first; what failed to load is asked again. */
function cached<T>(entries: Map<string, Promise<T>>, most: number, key: string, load: () => Promise<T>): Promise<T> {
  const entry = entries.get(key) ?? load();
  entries.delete(key);
  entries.set(key, entry);
  entry.catch(() => entries.delete(key));
  for (const oldest of entries.keys()) {
    if (entries.size <= most) break;
    entries.delete(oldest);
  }
  return entry;
}
