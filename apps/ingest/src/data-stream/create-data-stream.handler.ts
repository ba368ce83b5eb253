import {
  ingestSubject,
  newId,
  streamId,
  type CommandReply,
  type CommandRequest,
  type EventStore,
} from '#hotbed/contracts';

/** Creates a data stream under a name of its own. @throws NameTaken, IdempotencyConflict */
export class CreateDataStreamHandler {
  constructor(
    private readonly events: EventStore,
    private readonly now: () => number = Date.now,
  ) {}

  async create(
    tenantId: string,
    { name, idempotencyKey }: CommandRequest<'ingest', 'create-data-stream'>,
    actor: string,
  ): Promise<CommandReply<'ingest', 'create-data-stream'>> {
    const dataStreamId = newId();
    const eventId = newId();
    const answer: CommandReply<'ingest', 'create-data-stream'> = {
      dataStreamId,
      name,
      records: 0,
      rejected: 0,
      version: '1',
      subject: ingestSubject(tenantId, dataStreamId),
      createdAtMs: this.now(),
    };
    const result = await this.events.append({
      writes: [
        {
          streamId: streamId('data-stream', dataStreamId),
          expected: 'none',
          events: [
            {
              eventId,
              type: 'DataStreamCreated',
              tenantId,
              occurredAtMs: answer.createdAtMs,
              actor,
              correlationId: eventId,
              causationId: null,
              payload: { dataStreamId, name },
            },
          ],
        },
      ],
      names: [{ tenantId, kind: 'data-stream', name, id: dataStreamId }],
      ...(idempotencyKey === null
        ? {}
        : { idempotency: { tenantId, key: `create-data-stream/${idempotencyKey}`, requestHash: name, answer } }),
    });
    return result.outcome === 'replayed' ? (result.answer as typeof answer) : answer;
  }
}
