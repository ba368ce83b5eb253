/** handled: after a commit; passed: no event for this consumer; returned: given back for later; parked: dead letter. */
export type MessageOutcome = 'handled' | 'passed' | 'returned' | 'parked' | 'rejected' | 'foreign';

/** Counts what becomes of messages; an app binds it to its metrics. */
export interface ConsumerObserver {
  settled(consumer: string, outcome: MessageOutcome): void;
}

export const noObserver: ConsumerObserver = { settled: () => undefined };
