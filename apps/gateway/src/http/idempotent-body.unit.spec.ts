import { withIdempotencyKey } from './idempotent-body';

describe('the Idempotency-Key header', () => {
  it('becomes a field of the body', () => {
    expect(withIdempotencyKey({ name: 'a' }, 'k1')).toEqual({ idempotencyKey: 'k1', name: 'a' });
  });

  it('gives way to the field that the body has itself', () => {
    expect(withIdempotencyKey({ idempotencyKey: 'k2' }, 'k1')).toEqual({ idempotencyKey: 'k2' });
  });

  it.each([[null], ['text'], [[1]]])(
    'leaves a body that is no object as it is, for its check to refuse: %j',
    (body) => {
      expect(withIdempotencyKey(body, 'k1')).toBe(body);
      expect(withIdempotencyKey({ name: 'a' }, undefined)).toEqual({ name: 'a' });
    },
  );
});
