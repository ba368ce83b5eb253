import { loadGpuWorkerConfig } from './gpu-worker.config';

const ENV = {
  HOTBED_BASE_MODEL: '/models/base',
  HOTBED_DATABASE_URL: 'postgresql://hotbed@localhost:5432/hotbed',
  HOTBED_NATS_URL: 'nats://localhost:4222',
  HOTBED_BLOB_DIR: '/blobs',
};

describe('the worker configuration', () => {
  it('needs a base and a database, and names what is missing', () => {
    expect(() => loadGpuWorkerConfig({})).toThrow(/HOTBED_BASE_MODEL: is not set.*\n.*HOTBED_DATABASE_URL: is not set/);
  });

  it('takes the best kernels of the machine unless told otherwise', () => {
    expect(loadGpuWorkerConfig(ENV).engine.kernels).toBeNull();
    expect(loadGpuWorkerConfig({ ...ENV, HOTBED_KERNELS: 'scalar' }).engine.kernels).toBe('scalar');
  });

  it('honours failpoints under test only', () => {
    const armed = { ...ENV, HOTBED_FAILPOINTS: 'mid-backward:2' };
    expect(loadGpuWorkerConfig({ ...armed, NODE_ENV: 'test' }).failpoints.get('mid-backward')).toBe(2);
    expect(() => loadGpuWorkerConfig({ ...armed, NODE_ENV: 'production' })).toThrow(
      'HOTBED_FAILPOINTS: is honoured only with NODE_ENV=test',
    );
  });

  it('refuses a misspelt variable', () => {
    expect(() => loadGpuWorkerConfig({ ...ENV, HOTBED_POLICY_STATE: '3' })).toThrow(
      'did you mean HOTBED_POLICY_STATES?',
    );
  });
});
