import {
  DomainError,
  InvalidInput,
  NotFound,
  newId,
  type EventStore,
  type Transactions,
  type CommandReply,
  type CommandRequest,
} from '#hotbed/contracts';
import { type ArrivedRecord, type RecordAnswer, checkRecord, receive, reject } from './record.decider';

type Outcome = CommandReply<'ingest', 'append-records'>['records'][number];

/** Takes records from the doors: all of one call, or none. */
export class TakeRecordsHandler {
  constructor(
    private readonly events: EventStore,
    private readonly transactions: Transactions,
    private readonly now: () => number = Date.now,
  ) {}

  /** @throws InvalidInput naming index and field of the first bad records; then nothing is taken. */
  async takeAll(
    tenantId: string,
    dataStreamId: string,
    records: CommandRequest<'ingest', 'append-records'>['records'],
    actor: string,
  ): Promise<Outcome[]> {
    const items = records.map(({ key, content }, i) => {
      const recordId = newId();
      // Without a key every arrival is a record of its own.
      const arrived: ArrivedRecord = {
        tenantId,
        dataStreamId,
        identity: { kind: 'key', key: key ?? `auto-${recordId}` },
        content,
        actor,
      };
      return receive(arrived, checkRecord(content, `records[${i}].content`), this.stamp(recordId));
    });
    const results = await this.transactions.run((uow) => uow.append(items));
    return results.map((result, i) => {
      if (result.outcome === 'replayed') return { outcome: 'duplicate', recordId: knownId(result.answer) };
      const { recordId } = items[i]!.idempotency!.answer as RecordAnswer;
      return { outcome: 'received', recordId: recordId!, streamVersion: result.streams[0]!.lastVersion.toString() };
    });
  }

  /** One record from the broker. Returns once it is durable, as received or as rejected. */
  async takeOne(arrived: ArrivedRecord): Promise<'received' | 'rejected' | 'duplicate'> {
    const stamp = this.stamp(newId());
    let verdict: 'received' | 'rejected' = 'received';
    let item;
    try {
      item = receive(arrived, checkRecord(arrived.content, 'record'), stamp);
    } catch (error) {
      if (!(error instanceof InvalidInput)) throw error;
      verdict = 'rejected';
      item = reject(arrived, error, stamp);
    }
    const result = await this.events.append(item);
    return result.outcome === 'replayed' ? 'duplicate' : verdict;
  }

  private stamp(recordId: string) {
    return { recordId, eventId: newId(), nowMs: this.now() };
  }
}

/** The key belongs to a record that was refused before: only the broker's door records refusals. */
function knownId(answer: unknown): string {
  const { recordId } = answer as RecordAnswer;
  if (recordId !== null) return recordId;
  throw new DomainError(
    'Conflict',
    'record_was_rejected',
    'a record with this key was rejected before; use another key',
  );
}

/** @throws NotFound when a name or id is no data stream of the tenant. */
export async function dataStreamIdOf(events: EventStore, tenantId: string, ref: string): Promise<string> {
  const byName = await events.idOfName(tenantId, 'data-stream', ref);
  if (byName !== null) return byName;
  const [created] = await events.readStream(`data-stream:${ref}`, { limit: 1 });
  if (created?.tenantId === tenantId) return ref;
  throw new NotFound('data stream', ref, 'create it first: hotbed streams create <name>');
}
