import { DomainError, type AppendItem, type AppendResult, type BlobStore } from '#hotbed/contracts';
import type { Pool } from 'pg';
import {
  APPEND_SQL,
  appendParameters,
  encodeItem,
  readOutcomes,
  type AppendReply,
  type EncodedItem,
  type ItemOutcome,
} from './append-call';
import { findAppended } from './find-appended';
import { isConnectionLoss, isTransient, toDomainError } from './database-errors';

interface Waiting {
  item: EncodedItem;
  resolve(result: AppendResult): void;
  reject(error: unknown): void;
}

/** Events of one call; more gain nothing, and a failing call is repeated item by item. */
const GROUP_EVENTS = 200;
const GROUP_BYTES = 8 * 1024 * 1024;
const ATTEMPTS = 6;

/**
 * Groups the process's concurrent appends: the head lock defeats PostgreSQL's own group commit. While one call runs,
 * the next group gathers, so a lone append waits for nobody and a busy process fills its groups.
 *
 * 1. Each caller gets the outcome of its own item alone.
 * 2. Deadlocks and serialisation failures repeat the whole call; any other failure repeats its items one by one.
 * 3. After a lost connection the items are looked up by event id before they are tried again: none is written twice.
 */
export class AppendGroup {
  private readonly queue: Waiting[] = [];
  private running = false;

  constructor(
    private readonly pool: Pool,
    private readonly blobs: BlobStore,
  ) {}

  async append(item: AppendItem): Promise<AppendResult> {
    const encoded = await encodeItem(item, this.blobs);
    return new Promise((resolve, reject) => {
      this.queue.push({ item: encoded, resolve, reject });
      if (this.running) return;
      this.running = true;
      // Whatever arrives in this turn of the event loop joins the first group.
      setImmediate(() => void this.drain());
    });
  }

  private async drain(): Promise<void> {
    for (let group = this.takeGroup(); group.length > 0; group = this.takeGroup()) {
      const outcomes = await this.write(group.map((waiting) => waiting.item));
      group.forEach((waiting, i) => {
        const outcome = outcomes[i]!;
        if ('ok' in outcome) waiting.resolve(outcome.ok);
        else waiting.reject(outcome.error);
      });
    }
    this.running = false;
  }

  private takeGroup(): Waiting[] {
    let events = 0;
    let bytes = 0;
    let count = 0;
    for (const { item } of this.queue) {
      events += item.events.length;
      bytes += item.size;
      if (count > 0 && (events > GROUP_EVENTS || bytes > GROUP_BYTES)) break;
      count++;
    }
    return this.queue.splice(0, count);
  }

  /** Never rejects: every failure is the outcome of an item. */
  private async write(items: EncodedItem[]): Promise<ItemOutcome[]> {
    try {
      return await this.call(items);
    } catch (error) {
      if (items.length === 1 || isTransient(error) || isConnectionLoss(error)) {
        const failure = toDomainError(error) as Error;
        return items.map(() => ({ error: failure }));
      }
    }
    const outcomes: ItemOutcome[] = [];
    for (const item of items) outcomes.push(...(await this.write([item])));
    return outcomes;
  }

  private async call(items: EncodedItem[]): Promise<ItemOutcome[]> {
    let unsure = false;
    for (let attempt = 1; ; attempt++) {
      try {
        return unsure ? await this.callUnsure(items) : await this.callOnce(items);
      } catch (error) {
        unsure ||= isConnectionLoss(error);
        if (attempt >= ATTEMPTS || !(isTransient(error) || isConnectionLoss(error))) throw error;
        await new Promise((resolve) => setTimeout(resolve, 5 * 2 ** attempt * (1 + Math.random())));
      }
    }
  }

  private async callOnce(items: EncodedItem[]): Promise<ItemOutcome[]> {
    const { rows } = await this.pool.query<{ result: AppendReply }>({
      name: 'es_append',
      text: APPEND_SQL,
      values: appendParameters(items),
    });
    return readOutcomes(rows[0]!.result);
  }

  /** After a call whose commit is unknown: what stands in the log is done; a refusal may be our own success. */
  private async callUnsure(items: EncodedItem[]): Promise<ItemOutcome[]> {
    const outcomes: ItemOutcome[] = [];
    for (const item of items) {
      const before = await findAppended(this.pool, item);
      if (before !== null) {
        outcomes.push({ ok: before });
        continue;
      }
      const [outcome] = await this.callOnce([item]);
      const after =
        'error' in outcome! && outcome.error instanceof DomainError ? await findAppended(this.pool, item) : null;
      outcomes.push(after === null ? outcome! : { ok: after });
    }
    return outcomes;
  }
}
