import { InvalidInput } from '#hotbed/contracts';

/**
 * `Nats-Msg-Id` of a record with a producer's key. The broker remembers message ids per tenant, so the data stream is
 * part of the id: the same key in two data streams names two records.
 * @throws InvalidInput for a key that a header cannot carry
 */
export function messageIdOf(dataStreamId: string, key: string): string {
  if (!/^[\x21-\x7e]([\x20-\x7e]{0,254}[\x21-\x7e])?$/.test(key)) {
    throw new InvalidInput([
      { path: 'key', message: 'expected 1..256 printable ASCII characters without a space at either end' },
    ]);
  }
  return `${dataStreamId}/${key}`;
}

/** The key in a message id of ours, or the whole id where a producer chose one itself; null without one. */
export function producerKeyOf(messageId: string | undefined, dataStreamId: string): string | null {
  if (messageId === undefined || messageId === '') return null;
  const prefix = `${dataStreamId}/`;
  return messageId.startsWith(prefix) && messageId.length > prefix.length ? messageId.slice(prefix.length) : messageId;
}
