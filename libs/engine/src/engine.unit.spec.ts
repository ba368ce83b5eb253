import { DomainError } from '#hotbed/contracts';
import { AddonEngine } from './addon-engine';
import { EngineFault, toEngineFault } from './engine.errors';
import type { PolicyHandle, SampleRequest, SampleResult } from './engine.types';
import type { NativeEngine } from './native-addon';

const REQUEST: SampleRequest = {
  policy: null,
  prompt: Int32Array.of(1),
  seeds: ['1'],
  params: { temperature: 1, topK: 0, topP: 1, maxTokens: 4, stopTokenIds: [] },
  promptLogprobs: false,
};

const codedError = (code: string) => Object.assign(new Error(`about ${code}`), { code });

describe('EngineFault', () => {
  it('says per code whether the same call may succeed later', () => {
    expect(new EngineFault('busy', 'full').retryable).toBe(true);
    expect(new EngineFault('out_of_memory', 'full').retryable).toBe(true);
    expect(new EngineFault('invalid_file', 'bad').retryable).toBe(false);
    expect(new EngineFault('not_finite', 'nan').retryable).toBe(false);
  });

  it('is one of the platform’s expected failures', () => {
    const fault = new EngineFault('base_mismatch', 'other base');
    expect(fault).toBeInstanceOf(DomainError);
    expect(fault).toMatchObject({ kind: 'EngineFault', code: 'base_mismatch', message: 'other base' });
  });

  it('is made from the addon’s coded errors and leaves bugs alone', () => {
    expect(toEngineFault(codedError('io'))).toMatchObject({ kind: 'EngineFault', code: 'io', message: 'about io' });
    const bug = new TypeError('a bug');
    expect(toEngineFault(bug)).toBe(bug);
    const foreign = codedError('ENOENT');
    expect(toEngineFault(foreign)).toBe(foreign);
  });
});

describe('AddonEngine', () => {
  /** An addon object of which a test uses a few methods. */
  const engineWith = (methods: Partial<NativeEngine>) => new AddonEngine(methods as NativeEngine);

  it('turns an abort into a cancel of that request', async () => {
    const cancelled: number[] = [];
    let reject: (error: Error) => void = () => undefined;
    const engine = engineWith({
      sample: () => ({ id: 7, result: new Promise<SampleResult>((_, no) => (reject = no)) }),
      cancel: (id) => {
        cancelled.push(id);
        reject(codedError('cancelled'));
      },
    });
    const controller = new AbortController();
    const result = engine.sample(REQUEST, { signal: controller.signal });
    controller.abort();
    await expect(result).rejects.toMatchObject({ code: 'cancelled', retryable: false });
    expect(cancelled).toEqual([7]);
  });

  it('does not start a request whose signal was aborted before', async () => {
    const sample = jest.fn();
    const engine = engineWith({ sample });
    await expect(engine.sample(REQUEST, { signal: AbortSignal.abort() })).rejects.toMatchObject({ code: 'cancelled' });
    expect(sample).not.toHaveBeenCalled();
  });

  it('cancels nothing once the result is there', async () => {
    const cancel = jest.fn();
    const done: SampleResult = { sequences: [], promptLogprobs: null, promptTop: null };
    const engine = engineWith({ sample: () => ({ id: 7, result: Promise.resolve(done) }), cancel });
    const controller = new AbortController();
    await expect(engine.sample(REQUEST, { signal: controller.signal })).resolves.toBe(done);
    controller.abort();
    expect(cancel).not.toHaveBeenCalled();
  });

  it('disposes once, however often it is asked', async () => {
    const dispose = jest.fn(() => Promise.resolve());
    const engine = engineWith({ dispose });
    await Promise.all([engine.dispose(), engine.dispose()]);
    await engine.dispose();
    expect(dispose).toHaveBeenCalledTimes(1);
  });

  it('gives faults also where a method answers at once', () => {
    const engine = engineWith({
      peftConfig: () => {
        throw codedError('disposed');
      },
    });
    expect(() => engine.peftConfig(1 as PolicyHandle)).toThrow(EngineFault);
  });
});
