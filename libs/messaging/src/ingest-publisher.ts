import { ErrorCode, headers, NatsError } from 'nats';
import { DomainError, ingestSubject, InvalidInput, PAYLOAD_LIMIT_BYTES, Unavailable } from '#hotbed/contracts';
import { REQUEST_TIMEOUT_MS, text, type Broker } from './broker';
import { messageIdOf } from './producer-key';

export interface PublishedRecord {
  /** Place in the tenant's ingest stream. */
  sequence: bigint;
  /** The broker had this key already: nothing was stored a second time. */
  duplicate: boolean;
}

/** The producer's side: a record is published when the broker has stored it. */
export class IngestPublisher {
  constructor(private readonly broker: Broker) {}

  /**
   * @param record JSON; its schema is checked by ingest, which answers with RecordReceived or RecordRejected
   * @param key makes a retry harmless, however late: the same key is the same record
   * @throws InvalidInput; TooMany `ingest_full` when the tenant's room is used up; Unavailable (then publish again with the same key)
   */
  async publish(tenantId: string, dataStreamId: string, record: unknown, key?: string): Promise<PublishedRecord> {
    const body = JSON.stringify(record);
    if (body === undefined) throw new InvalidInput([{ path: 'record', message: 'expected a JSON value' }]);
    if (Buffer.byteLength(body) > PAYLOAD_LIMIT_BYTES) {
      throw new InvalidInput([{ path: 'record', message: `is larger than ${PAYLOAD_LIMIT_BYTES} bytes` }]);
    }
    const messageHeaders = headers();
    if (key !== undefined) messageHeaders.set('Nats-Msg-Id', messageIdOf(dataStreamId, key));
    try {
      const ack = await this.broker.jetStream.publish(ingestSubject(tenantId, dataStreamId), body, {
        headers: messageHeaders,
        timeout: REQUEST_TIMEOUT_MS,
      });
      return { sequence: BigInt(ack.seq), duplicate: ack.duplicate };
    } catch (error) {
      throw publishError(error, tenantId);
    }
  }
}

function publishError(error: unknown, tenantId: string): DomainError {
  if (/maximum (bytes|messages)|insufficient/i.test(text(error))) {
    return new DomainError(
      'TooMany',
      'ingest_full',
      `the ingest stream of tenant ${tenantId} is full; wait until it is read`,
      {
        cause: error,
        retryAfterMs: 1000,
      },
    );
  }
  if (error instanceof NatsError && error.code === String(ErrorCode.NoResponders)) {
    return new Unavailable('ingest_stream_missing', `tenant ${tenantId} has no ingest stream (yet)`, { cause: error });
  }
  return new Unavailable('broker_unavailable', `NATS did not confirm the record: ${text(error)}`, { cause: error });
}
