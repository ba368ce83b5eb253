import {
  DomainError,
  InvalidInput,
  newId,
  type AppendItem,
  type CommandReply,
  type CommandRequest,
  type EventStore,
  type Transactions,
} from '#hotbed/contracts';
import { ownsDataStream } from './data-stream-id';
import { type ArrivedRecord, type RecordAnswer, checkRecord, receive, reject } from './record.decider';

type Outcome = CommandReply<'ingest', 'append-records'>['records'][number];

/** Takes records: all of one call, or none. */
export class TakeRecordsHandler {
  constructor(
    private readonly events: EventStore,
    private readonly transactions: Transactions,
    private readonly now: () => number = Date.now,
  ) {}

  /** From the doors. @throws InvalidInput naming index and field of the first bad record; then nothing is taken. */
  async takeAll(
    tenantId: string,
    dataStreamId: string,
    records: CommandRequest<'ingest', 'append-records'>['records'],
    actor: string,
  ): Promise<Outcome[]> {
    const items = records.map(({ key, content }, i) => {
      const stamp = this.stamp();
      // Without a key every arrival is a record of its own.
      const identity = { kind: 'key', key: key ?? `auto-${stamp.recordId}` } as const;
      const arrived: ArrivedRecord = { tenantId, dataStreamId, identity, content, actor };
      return receive(arrived, checkRecord(content, `records[${i}].content`), stamp);
    });
    const results = await this.transactions.run((uow) => uow.append(items));
    return results.map((result, i) => {
      if (result.outcome === 'replayed') return { outcome: 'duplicate', recordId: knownId(result.answer) };
      const { recordId } = items[i]!.idempotency!.answer as RecordAnswer;
      return { outcome: 'received', recordId: recordId!, streamVersion: result.streams[0]!.lastVersion.toString() };
    });
  }

  /** From the broker, of one data stream. Returns once every one is durable, as received, rejected, or known before. */
  async takeBatch(records: readonly ArrivedRecord[]): Promise<void> {
    const [first] = records;
    if (first === undefined) return;
    const known = await ownsDataStream(this.events, first.tenantId, first.dataStreamId);
    const items = records.map((arrived) => (known ? this.judge(arrived) : this.refuseUnknownStream(arrived)));
    await this.transactions.run((uow) => uow.append(items));
  }

  /** Records that one message from the broker cannot be taken, and why. */
  async reject(arrived: ArrivedRecord, error: unknown): Promise<void> {
    const reason =
      error instanceof InvalidInput
        ? error
        : new InvalidInput([{ path: 'record', message: error instanceof Error ? error.message : String(error) }]);
    const known = await ownsDataStream(this.events, arrived.tenantId, arrived.dataStreamId);
    await this.events.append(known ? reject(arrived, reason, this.stamp()) : this.refuseUnknownStream(arrived));
  }

  private judge(arrived: ArrivedRecord): AppendItem {
    try {
      if (arrived.problem !== undefined) throw new InvalidInput([arrived.problem]);
      return receive(arrived, checkRecord(arrived.content, 'record'), this.stamp());
    } catch (error) {
      if (!(error instanceof InvalidInput)) throw error;
      return reject(arrived, error, this.stamp());
    }
  }

  /**
   * The subject names no data stream of the tenant. The refusal cannot stand in a stream that does not exist, nor in one
   * that may be another tenant's: it stands in the stream that carries the tenant's own id.
   */
  private refuseUnknownStream(arrived: ArrivedRecord): AppendItem {
    const error = new InvalidInput([
      { path: 'subject', message: `"${arrived.dataStreamId}" is no data stream of this tenant` },
    ]);
    return reject({ ...arrived, dataStreamId: arrived.tenantId }, error, this.stamp(), 'any');
  }

  private stamp() {
    return { recordId: newId(), eventId: newId(), nowMs: this.now() };
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
