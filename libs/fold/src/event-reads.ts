import type { EventStore } from '#hotbed/contracts';

/** All that a fold reads: recorded events of streams. */
export type EventReads = Pick<EventStore, 'readStream'>;
