import type { PolicyHandle } from '#hotbed/engine';
import { PolicyStates } from './policy-states';

const handle = (n: number): PolicyHandle => n as PolicyHandle;

const BYTES = 100;

/** Room for so many states of 100 bytes each. */
function statesOf(capacity: number) {
  const released: number[] = [];
  const engine = { release: (policy: PolicyHandle) => void released.push(policy), policyBytes: () => BYTES };
  const states = new PolicyStates(engine, capacity * BYTES);
  return { states, released };
}

const never = (): Promise<PolicyHandle> => Promise.reject(new Error('made again'));

describe('policy states below their capacity', () => {
  it('are made once for all who ask at the same time', async () => {
    const { states } = statesOf(2);
    const make = jest.fn(() => Promise.resolve(handle(7)));
    const uses = await Promise.all([states.use('a', 1n, make), states.use('a', 1n, make)]);
    expect(uses.map((u) => u.policy)).toEqual([7, 7]);
    expect(make).toHaveBeenCalledTimes(1);
  });

  it('belong to one adapter and one operation', async () => {
    const { states } = statesOf(4);
    states.offer('a', 1n, handle(1));
    states.offer('a', 2n, handle(2));
    states.offer('b', 1n, handle(3));
    const policies = [
      await states.use('a', 1n, never),
      await states.use('a', 2n, never),
      await states.use('b', 1n, never),
    ];
    expect(policies.map((p) => p.policy)).toEqual([1, 2, 3]);
  });

  it('are not made again while they are kept, and a second copy is released', () => {
    const { states, released } = statesOf(2);
    states.offer('a', 1n, handle(1));
    states.offer('a', 1n, handle(2));
    expect(released).toEqual([2]);
  });

  it('may be asked for again after making one failed', async () => {
    const { states } = statesOf(2);
    await expect(states.use('a', 1n, never)).rejects.toThrow('made again');
    const use = await states.use('a', 1n, () => Promise.resolve(handle(5)));
    expect(use.policy).toBe(5);
  });
});

describe('policy states beyond their capacity', () => {
  it('leave in the order of their last use', async () => {
    const { states, released } = statesOf(2);
    states.offer('a', 1n, handle(1));
    states.offer('a', 2n, handle(2));
    (await states.use('a', 1n, never)).done();
    states.offer('a', 3n, handle(3));
    await settled();
    expect(released).toEqual([2]);
  });

  it('stay while somebody samples from them', async () => {
    const { states, released } = statesOf(1);
    states.offer('a', 1n, handle(1));
    const use = await states.use('a', 1n, never);
    states.offer('a', 2n, handle(2));
    await settled();
    expect(released).toEqual([2]);
    states.offer('a', 3n, handle(3));
    use.done();
    use.done();
    await settled();
    expect(released).toEqual([2, 3]);
    expect(states.size).toBe(1);
  });
});

describe('policy states when memory is short', () => {
  it('go oldest first, and never while in use', async () => {
    const { states, released } = statesOf(8);
    for (const n of [1n, 2n, 3n]) states.offer('a', n, handle(Number(n)));
    const use = await states.use('a', 1n, never);
    expect([await states.releaseOldest(), await states.releaseOldest(), await states.releaseOldest()]).toEqual([
      true,
      true,
      false,
    ]);
    expect(released).toEqual([2, 3]);
    use.done();
    expect(await states.releaseOldest()).toBe(true);
    expect(released).toEqual([2, 3, 1]);
  });
});

describe('policy states of an adapter that is folded again', () => {
  it('go where they lie beyond the log, and stay where they do not', async () => {
    const { states, released } = statesOf(8);
    states.offer('a', 1n, handle(1));
    states.offer('a', 2n, handle(2));
    states.offer('b', 2n, handle(3));
    states.forgetAfter('a', 1n);
    await settled();
    expect(released).toEqual([2]);
  });

  it('are released once their last user is done', async () => {
    const { states, released } = statesOf(8);
    states.offer('a', 1n, handle(1));
    const use = await states.use('a', 1n, never);
    states.forget('a');
    await settled();
    expect(released).toEqual([]);
    use.done();
    await settled();
    expect(released).toEqual([1]);
  });
});

const settled = (): Promise<void> => new Promise((resolve) => setImmediate(resolve));
