import { DomainError, streamId, type EventStore, type ExperimentCreated } from '#hotbed/contracts';
import type { Batch, BatchNeed, BatchPrompt } from '../experiment/training.decider';
import { batchOrdinals } from '../grpo/batch-selection';

/** The text side of bases, as `Bases` has it. */
export interface TextOfBase {
  /** @throws DomainError Unavailable where the base's tokenizer is not at hand */
  textOf(baseDigest: string): Promise<{ tokenizer: { encode(text: string): Int32Array }; contextLength: number }>;
}

const PAGE = 1000;
/** Windows kept in memory, newest use last: a window serves every step of its run. */
const CACHED_WINDOWS = 64;

/** Records of windows, encoded once. A window never changes, so a copy in memory is never stale. */
export class RecordWindows {
  private readonly cache = new Map<string, Promise<BatchPrompt[]>>();

  constructor(
    private readonly store: EventStore,
    private readonly bases: TextOfBase,
  ) {}

  /** The prompts of one step, and how many records the window has that the model can take. */
  async batch(created: ExperimentCreated, need: BatchNeed): Promise<Batch> {
    const records = await this.window(created.baseDigest, need);
    if (records.length === 0) return { usableRecords: 0, prompts: [] };
    const ordinals = batchOrdinals(records.length, need.runOrdinal, need.step, created.algorithm.promptsPerStep);
    return { usableRecords: records.length, prompts: ordinals.flatMap((ordinal) => records[ordinal] ?? []) };
  }

  private window(baseDigest: string, { window }: BatchNeed): Promise<BatchPrompt[]> {
    const key = `${baseDigest} ${window.dataStreamId} ${window.from} ${window.to}`;
    const cached = this.cache.get(key) ?? this.load(baseDigest, window);
    this.cache.delete(key);
    this.cache.set(key, cached);
    cached.catch(() => this.cache.delete(key));
    for (const oldest of this.cache.keys()) {
      if (this.cache.size <= CACHED_WINDOWS) break;
      this.cache.delete(oldest);
    }
    return cached;
  }

  /** A prompt without room for one more token in the context, or without a token, is left out: a function of it alone. */
  private async load(baseDigest: string, window: BatchNeed['window']): Promise<BatchPrompt[]> {
    const { tokenizer, contextLength } = await this.bases.textOf(baseDigest);
    const records: BatchPrompt[] = [];
    const upTo = BigInt(window.to);
    for (let after = BigInt(window.from) - 1n; ;) {
      const events = await this.store.readStream(streamId('data-stream', window.dataStreamId), {
        after,
        upTo,
        limit: PAGE,
      });
      for (const event of events) {
        if (event.type !== 'RecordReceived') continue;
        const { recordId, content } = event.payload;
        const tokens = tokensOf(tokenizer, content.prompt);
        if (tokens === null || tokens.length >= contextLength) continue;
        records.push({
          recordId,
          streamVersion: event.streamVersion.toString(),
          subjectIds: content.subjectIds,
          tokens,
        });
      }
      const last = events.at(-1);
      if (last === undefined || last.streamVersion >= upTo) return records;
      after = last.streamVersion;
    }
  }
}

function tokensOf(tokenizer: { encode(text: string): Int32Array }, prompt: string): Int32Array | null {
  try {
    return tokenizer.encode(prompt);
  } catch (error) {
    if (error instanceof DomainError && error.kind === 'InvalidInput') return null;
    throw error;
  }
}
