import { Waiters } from './waiters';

describe('those who wait for an operation', () => {
  it('go on when it or a later one was reached, and not before', async () => {
    const waiters = new Waiters();
    const reached: string[] = [];
    const waiting = [1n, 2n, 3n].map((n) => waiters.reached(n).then(() => reached.push(n.toString())));
    waiters.advance(2n);
    await Promise.all(waiting.slice(0, 2));
    expect(reached).toEqual(['1', '2']);
    waiters.advance(3n);
    await Promise.all(waiting);
  });

  it('hear why, when it will never be reached; what was reached stays so', async () => {
    const waiters = new Waiters();
    const waiting = waiters.reached(2n);
    waiters.advance(1n);
    waiters.fail(new Error('the lease is gone'));
    await expect(waiting).rejects.toThrow('the lease is gone');
    await expect(waiters.reached(5n)).rejects.toThrow('the lease is gone');
    await expect(waiters.reached(1n)).resolves.toBeUndefined();
  });
});
