import { CommitQueue } from './commit-queue';

/** A commit that ends when it is told to. */
function aCommit(log: string[], name: string) {
  let end: (error?: Error) => void = () => undefined;
  const done = new Promise<void>((resolve, reject) => {
    end = (error) => (error === undefined ? resolve() : reject(error));
  });
  const commit = async (): Promise<void> => {
    log.push(`${name} begins`);
    await done;
    log.push(`${name} ends`);
  };
  return { commit, end: (error?: Error) => end(error) };
}

describe('a queue of commits', () => {
  it('lets the caller go on while a commit is in flight, and commits one at a time in order', async () => {
    const log: string[] = [];
    const queue = new CommitQueue(4);
    const first = aCommit(log, 'first');
    const second = aCommit(log, 'second');
    await queue.add(first.commit);
    await queue.add(second.commit);
    await settled();
    expect(log).toEqual(['first begins']);
    second.end();
    first.end();
    await queue.drain();
    expect(log).toEqual(['first begins', 'first ends', 'second begins', 'second ends']);
  });

  it('commits nothing after a failure, and says so to the next caller', async () => {
    const log: string[] = [];
    const queue = new CommitQueue(4);
    const first = aCommit(log, 'first');
    const second = aCommit(log, 'second');
    await queue.add(first.commit);
    await queue.add(second.commit);
    first.end(new Error('the lease is gone'));
    await queue.settled();
    await expect(queue.add(second.commit)).rejects.toThrow('the lease is gone');
    await expect(queue.drain()).rejects.toThrow('the lease is gone');
    expect(log).toEqual(['first begins']);
  });

  it('makes the caller wait when it is full', async () => {
    const log: string[] = [];
    const queue = new CommitQueue(2);
    const commits = ['first', 'second'].map((name) => aCommit(log, name));
    await queue.add(commits[0]!.commit);
    let added = false;
    const adding = queue.add(commits[1]!.commit).then(() => (added = true));
    await settled();
    expect(added).toBe(false);
    commits[0]!.end();
    await adding;
    commits[1]!.end();
    await queue.drain();
  });
});

const settled = (): Promise<void> => new Promise((resolve) => setImmediate(resolve));
