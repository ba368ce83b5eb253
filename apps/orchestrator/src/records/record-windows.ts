import { DomainError, streamId, type EventStore, type ExperimentCreated } from '#hotbed/contracts';
import type { Batch, BatchNeed, BatchPrompt } from '../experiment/training.decider';
import { batchOrdinals } from '../grpo/batch-selection';

/** The text side of bases, as `Bases` has it. */
export interface TextOfBase {
  /** @throws DomainError Unavailable where the base's tokenizer is not at hand */
  textOf(baseDigest: string): Promise<{ tokenizer: { encode(text: string): Int32Array }; contextLength: number }>;
}

const PAGE = 1000;
/** Records of all windows in memory; the window in use may be larger alone. */
const CACHED_RECORDS = 500_000;

interface CachedWindow {
  records: Promise<BatchPrompt[]>;
  /** 0 until it is loaded. */
  size: number;
}

/**
 * Records of windows, encoded once: a window serves every step of its run, and never changes, so that a copy in memory
 * is never stale.
 */
export class RecordWindows {
  /** Newest use last. */
  private readonly cache = new Map<string, CachedWindow>();

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
    const known = this.cache.get(key);
    const cached = known ?? { records: this.load(baseDigest, window), size: 0 };
    this.cache.delete(key);
    this.cache.set(key, cached);
    if (known === undefined) {
      cached.records.then(
        (records) => {
          cached.size = records.length;
          this.evict();
        },
        () => this.cache.delete(key),
      );
    }
    return cached.records;
  }

  private evict(): void {
    let total = 0;
    for (const { size } of this.cache.values()) total += size;
    for (const [key, { size }] of this.cache) {
      if (total <= CACHED_RECORDS || this.cache.size === 1) return;
      this.cache.delete(key);
      total -= size;
    }
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
