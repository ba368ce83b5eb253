import { DomainError } from '#hotbed/contracts';
import type { CountedRecord, Trigger, Window } from './trigger';

/**
 * Every N records: one window per N records after the cursor, cut exactly at the Nth, so that the windows are a function
 * of the stream and never of how many records a batch happened to bring.
 * @param after records with streamVersion > trigger.cursorVersion, ascending
 */
export function countWindows(trigger: Trigger, after: readonly CountedRecord[]): Window[] {
  if (trigger.policy.kind !== 'count') return [];
  const size = trigger.policy.records;
  const windows: Window[] = [];
  let from = trigger.cursorVersion + 1n;
  for (let end = size; end <= after.length; end += size) {
    const to = after[end - 1]!.streamVersion;
    windows.push({ from, to, records: size });
    from = to + 1n;
  }
  return windows;
}

/** Every T: whatever came since the cursor, once the time is over and there is something. */
export function intervalWindow(trigger: Trigger, after: readonly CountedRecord[], nowMs: number): Window | null {
  if (trigger.policy.kind !== 'interval') return null;
  if (nowMs - trigger.lastTriggeredMs < trigger.policy.everyMs) return null;
  return wholeWindow(trigger, after);
}

/** By hand: whatever came since the cursor. @throws IllegalState `no_new_records` */
export function manualWindow(trigger: Trigger, after: readonly CountedRecord[]): Window {
  const window = wholeWindow(trigger, after);
  if (window !== null) return window;
  throw new DomainError(
    'IllegalState',
    'no_new_records',
    'the data stream has no record that this experiment has not used; append records, then trigger again',
    { context: { experimentId: trigger.experimentId, dataStreamId: trigger.dataStreamId } },
  );
}

function wholeWindow(trigger: Trigger, after: readonly CountedRecord[]): Window | null {
  const last = after.at(-1);
  if (last === undefined) return null;
  return { from: trigger.cursorVersion + 1n, to: last.streamVersion, records: after.length };
}
