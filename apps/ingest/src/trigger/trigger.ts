import type { TriggerPayload } from '#hotbed/contracts';

/** A record that the trigger counts: where it stands in its data stream. */
export interface CountedRecord {
  streamVersion: bigint;
}

/** Where one experiment stands in its data stream. */
export interface Trigger {
  experimentId: string;
  tenantId: string;
  dataStreamId: string;
  policy: TriggerPayload;
  /** Records up to this stream version belong to earlier windows. */
  cursorVersion: bigint;
  lastTriggeredMs: number;
}

/** Stream versions `from`..`to`, both inclusive, that hold `records` records. */
export interface Window {
  from: bigint;
  to: bigint;
  records: number;
}
