import { closeOnFailure } from './close-on-failure';

const closed: string[] = [];
const opened = (name: string, problem?: Error) => ({
  close: async () => {
    closed.push(name);
    if (problem !== undefined) throw problem;
  },
});
beforeEach(() => closed.splice(0));

describe('closeOnFailure', () => {
  it('leaves open what a start opened that succeeds', async () => {
    expect(await closeOnFailure(async (keep) => keep(opened('a')) && 'started')).toBe('started');
    expect(closed).toEqual([]);
  });

  it('closes what a start had opened that fails, newest first, whatever closing says', async () => {
    const start = closeOnFailure(async (keep) => {
      keep(opened('a'));
      keep(opened('b', new Error('cannot close')));
      keep(opened('c'));
      throw new Error('cannot start');
    });
    await expect(start).rejects.toThrow('cannot start');
    expect(closed).toEqual(['c', 'b', 'a']);
  });
});
