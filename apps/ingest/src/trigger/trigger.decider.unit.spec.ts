import * as fc from 'fast-check';
import type { Trigger, Window } from './trigger';
import { countWindows, intervalWindow, manualWindow } from './trigger.decider';

const aTrigger = (policy: Trigger['policy'], cursorVersion = 0n): Trigger => ({
  experimentId: 'e',
  tenantId: 't',
  dataStreamId: 's',
  policy,
  cursorVersion,
  lastTriggeredMs: 1_000,
});
const recordsAt = (...versions: number[]) => versions.map((v) => ({ streamVersion: BigInt(v) }));

describe('a count trigger', () => {
  it('waits until enough records came', () => {
    expect(countWindows(aTrigger({ kind: 'count', records: 3 }), recordsAt(2, 3))).toEqual([]);
  });

  it('cuts each window at its last record and begins the next behind it', () => {
    expect(countWindows(aTrigger({ kind: 'count', records: 2 }), recordsAt(2, 4, 5, 9, 10))).toEqual([
      { from: 1n, to: 4n, records: 2 },
      { from: 5n, to: 9n, records: 2 },
    ]);
  });

  it('gives the same windows however the records are batched', () => {
    fc.assert(
      fc.property(
        fc.array(fc.integer({ min: 1, max: 3 }), { maxLength: 40 }),
        fc.integer({ min: 1, max: 7 }),
        (gaps, size) => {
          let version = 0n;
          const all = gaps.map((gap) => ({ streamVersion: (version += BigInt(gap)) }));
          const whole = countWindows(aTrigger({ kind: 'count', records: size }), all);
          const oneByOne: Window[] = [];
          let trigger = aTrigger({ kind: 'count', records: size });
          for (let n = 1; n <= all.length; n++) {
            const after = all.slice(0, n).filter((r) => r.streamVersion > trigger.cursorVersion);
            for (const window of countWindows(trigger, after)) {
              oneByOne.push(window);
              trigger = { ...trigger, cursorVersion: window.to };
            }
          }
          expect(oneByOne).toEqual(whole);
        },
      ),
      { seed: 7 },
    );
  });
});

describe('an interval trigger', () => {
  const trigger = aTrigger({ kind: 'interval', everyMs: 5_000 }, 3n);

  it('stays quiet before its time', () => {
    expect(intervalWindow(trigger, recordsAt(4), 5_999)).toBeNull();
  });

  it('stays quiet when nothing came', () => {
    expect(intervalWindow(trigger, [], 9_000)).toBeNull();
  });

  it('takes all that came, once the time is over', () => {
    expect(intervalWindow(trigger, recordsAt(4, 6), 6_000)).toEqual({ from: 4n, to: 6n, records: 2 });
  });
});

describe('a manual trigger', () => {
  it('takes all that came', () => {
    expect(manualWindow(aTrigger({ kind: 'manual' }, 2n), recordsAt(3))).toEqual({ from: 3n, to: 3n, records: 1 });
  });

  it('says so when there is nothing new', () => {
    expect(() => manualWindow(aTrigger({ kind: 'manual' }), [])).toThrow(
      expect.objectContaining({ code: 'no_new_records' }),
    );
  });
});
