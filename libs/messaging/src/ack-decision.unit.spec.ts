import { DomainError, ERROR_KINDS, InvalidInput, LeaseLost, Unavailable, VersionConflict } from '#hotbed/contracts';
import { ackDecision, retryDelayMs } from './ack-decision';
import { messageIdOf, producerKeyOf } from './producer-key';

describe('the decision on a failed message', () => {
  it.each([
    [new InvalidInput([{ path: 'a', message: 'b' }]), 'park'],
    [new VersionConflict('adapter:a', '1', '2'), 'retry'],
    [new LeaseLost('adapter:a', '1'), 'retry'],
    [new Unavailable('database_unavailable', 'away'), 'retry'],
    [new DomainError('IllegalState', 'unknown_event_type', 'newer'), 'park'],
    [new DomainError('EngineFault', 'nan', 'NaN'), 'park'],
    [new DomainError('EngineFault', 'memory', 'full', { retryable: true }), 'retry'],
    [new DomainError('Conflict', 'lane_parked', 'parked'), 'settle'],
    [new TypeError('a bug'), 'retry'],
    ['no error at all', 'retry'],
  ])('%s: %s', (error, decision) => {
    expect(ackDecision(error)).toBe(decision);
  });

  it('exists for every kind of error', () => {
    for (const kind of ERROR_KINDS) expect(ackDecision(new DomainError(kind, 'x', 'x'))).toMatch(/^(retry|park)$/);
  });
});

describe('the pause before the next attempt', () => {
  it('doubles from 100 ms to a minute, and believes an error that knows better', () => {
    expect([1, 2, 3, 10, 11, 1000].map((n) => retryDelayMs(n))).toEqual([100, 200, 400, 51_200, 60_000, 60_000]);
    expect(retryDelayMs(1, new Unavailable('x', 'x', { retryAfterMs: 5000 }))).toBe(5000);
  });
});

describe("a producer's key", () => {
  it('is read back from its message id', () => {
    for (const key of ['a', 'order/17', 'a b', 'x'.repeat(256)]) {
      expect(producerKeyOf(messageIdOf('stream', key), 'stream')).toBe(key);
    }
  });

  it('is the whole id where the producer chose one itself, and null without one', () => {
    expect(producerKeyOf('other/17', 'stream')).toBe('other/17');
    expect(producerKeyOf('stream/', 'stream')).toBe('stream/');
    expect([producerKeyOf(undefined, 's'), producerKeyOf('', 's')]).toEqual([null, null]);
  });
});
