import { Coalesced } from './coalesced';

describe('a task that many ask for', () => {
  it('runs once more for everything that was asked while it ran', async () => {
    let runs = 0;
    let end: () => void = () => undefined;
    const first = new Promise<void>((resolve) => (end = resolve));
    const task = new Coalesced(async () => {
      runs++;
      if (runs === 1) await first;
    }, 0);
    for (let i = 0; i < 10; i++) task.ask();
    expect(runs).toBe(1);
    end();
    await settled();
    expect(runs).toBe(2);
  });

  it('does not begin again once closed', async () => {
    let runs = 0;
    const task = new Coalesced(async () => void runs++, 0);
    await task.close();
    task.ask();
    await settled();
    expect(runs).toBe(0);
  });
});

const settled = (): Promise<void> => new Promise((resolve) => setTimeout(resolve, 0));
