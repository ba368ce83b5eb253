import { InvalidInput } from '#hotbed/contracts';
import { type ArrivedRecord, checkRecord, receive, reject } from './record.decider';

const stamp = {
  recordId: '01900000-0000-7000-8000-000000000001',
  eventId: '01900000-0000-7000-8000-000000000002',
  nowMs: 5,
};
const arrived = (identity: ArrivedRecord['identity']): ArrivedRecord => ({
  tenantId: '01900000-0000-7000-8000-00000000000a',
  dataStreamId: '01900000-0000-7000-8000-00000000000b',
  identity,
  content: {},
  actor: 'producer:x',
});

describe('checking a record', () => {
  it('fills in what may be left out', () => {
    expect(checkRecord({ prompt: 'cat>' }, 'record')).toEqual({
      prompt: 'cat>',
      answer: null,
      subjectIds: [],
      metadata: {},
    });
  });

  it.each([
    [{}, 'record.prompt'],
    [{ prompt: '' }, 'record.prompt'],
    [{ prompt: 'a', extra: 1 }, 'record'],
    [{ prompt: 'a\u0000' }, 'record.prompt'],
    [{ prompt: 'a', metadata: { k: '\ud800' } }, 'record.metadata.k'],
    ['text', 'record'],
    [null, 'record'],
  ])('refuses %j and names the field', (content, path) => {
    expect(() => checkRecord(content, 'record')).toThrow(
      expect.objectContaining({ fields: [expect.objectContaining({ path })] }),
    );
  });

  it('refuses a record above the size limit', () => {
    const metadata = Object.fromEntries(Array.from({ length: 140 }, (_, i) => [`k${i}`, 'x'.repeat(1024)]));
    expect(() => checkRecord({ prompt: 'a', metadata }, 'record')).toThrow(/limit is 131072/);
  });
});

describe('taking a record', () => {
  it('is known by the producer key, not by its content', () => {
    const identity = { kind: 'key', key: 'order-7' } as const;
    const one = receive(arrived(identity), checkRecord({ prompt: 'a' }, 'r'), stamp);
    const two = receive(arrived(identity), checkRecord({ prompt: 'b' }, 'r'), stamp);
    expect(one.idempotency).toEqual(two.idempotency);
  });

  it('without a key it is known by where the broker stored it', () => {
    const item = receive(
      arrived({ kind: 'broker', generation: 'g1', sequence: '9' }),
      checkRecord({ prompt: 'a' }, 'r'),
      stamp,
    );
    expect(item.idempotency?.key).toMatch(/broker\/g1\/9$/);
  });

  it('a refusal is recorded with what was wrong, in storable text', () => {
    const error = new InvalidInput([{ path: 'record.x\u0000', message: 'bad \ud800' }]);
    const [event] = reject(arrived({ kind: 'key', key: 'k' }), error, stamp).writes[0]!.events;
    expect(event).toMatchObject({
      type: 'RecordRejected',
      payload: { problems: [{ path: 'record.x?', message: 'bad \ufffd' }] },
    });
  });
});
