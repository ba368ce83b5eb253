import { Health } from './health';
import { silentLogger } from './logger';
import { ShutdownIncomplete, shutDown } from './shutdown';

describe('shutDown', () => {
  it('runs every step in order, also after one that failed', async () => {
    const ran: string[] = [];
    const steps = [
      { name: 'a', run: () => void ran.push('a') },
      { name: 'b', run: () => Promise.reject(new Error('broken')) },
      { name: 'c', run: async () => void ran.push('c') },
    ];
    await expect(shutDown(steps, 1000, silentLogger())).rejects.toThrow('shutdown incomplete: b: broken');
    expect(ran).toEqual(['a', 'c']);
  });

  it('ends although a step does not', async () => {
    const steps = [{ name: 'stuck', run: () => new Promise<void>(() => undefined) }];
    await expect(shutDown(steps, 10, silentLogger())).rejects.toBeInstanceOf(ShutdownIncomplete);
  });
});

describe('Health', () => {
  it('is ready when every check passes, and says in words what does not', async () => {
    const health = new Health();
    expect(await health.ready()).toEqual({ ok: true, checks: {} });
    health.readiness('database', () => undefined);
    const remove = health.readiness('broker', async () => {
      throw new Error('not connected');
    });
    expect(await health.ready()).toEqual({ ok: false, checks: { database: 'ok', broker: 'not connected' } });
    remove();
    expect((await health.ready()).ok).toBe(true);
  });

  it('is never ready again once it drains, and stays alive', async () => {
    const health = new Health();
    health.draining();
    expect(await health.ready()).toEqual({ ok: false, checks: { process: 'shutting down' } });
    expect((await health.live()).ok).toBe(true);
  });

  it('refuses two checks of one name', () => {
    const health = new Health();
    health.readiness('a', () => undefined);
    expect(() => health.readiness('a', () => undefined)).toThrow('registered twice');
  });
});
