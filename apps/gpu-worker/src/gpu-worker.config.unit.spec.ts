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

  it('computes under f32-1 unless told otherwise, and knows no other word', () => {
    expect(loadGpuWorkerConfig(ENV).engine.numerics).toBe('f32-1');
    expect(loadGpuWorkerConfig({ ...ENV, HOTBED_NUMERICS: 'bf16-1' }).engine.numerics).toBe('bf16-1');
    expect(() => loadGpuWorkerConfig({ ...ENV, HOTBED_NUMERICS: 'bf16' })).toThrow('HOTBED_NUMERICS');
  });

  it('honours failpoints under test only', () => {
    const armed = { ...ENV, HOTBED_FAILPOINTS: 'mid-backward:2' };
    expect(loadGpuWorkerConfig({ ...armed, NODE_ENV: 'test' }).failpoints.get('mid-backward')).toBe(2);
    expect(() => loadGpuWorkerConfig({ ...armed, NODE_ENV: 'production' })).toThrow(
      'HOTBED_FAILPOINTS: is honoured only with NODE_ENV=test',
    );
  });

  it('reads floors, limits and weights of tenants', () => {
    const { engine, tenantWeights } = loadGpuWorkerConfig({
      ...ENV,
      HOTBED_DECODE_FLOOR: '0.4',
      HOTBED_MAX_WAIT_GFLOP: '50',
      HOTBED_TENANT_MAX_SAMPLING_CALLS: '7',
      HOTBED_TENANT_WEIGHTS: '0192-aa=3,0192-bb=0.5',
    });
    expect(engine.scheduling).toEqual({ decodeFloor: 0.4, trainingFloor: 0.25, maxWaitGflop: 50 });
    expect(engine.limits.perTenant.samplingCalls).toBe(7);
    expect(engine.limits.total.samplingCalls).toBe(16_384);
    expect([...tenantWeights]).toEqual([
      ['0192-aa', 3],
      ['0192-bb', 0.5],
    ]);
  });

  it.each([
    ['HOTBED_DECODE_FLOOR', '1.5'],
    ['HOTBED_MAX_SAMPLING_TOKENS', '0'],
    ['HOTBED_TENANT_WEIGHTS', 'a=0'],
    ['HOTBED_TENANT_WEIGHTS', 'a:2'],
  ])('refuses %s=%s by name', (name, value) => {
    expect(() => loadGpuWorkerConfig({ ...ENV, [name]: value })).toThrow(name);
  });

  it('refuses a misspelt variable', () => {
    expect(() => loadGpuWorkerConfig({ ...ENV, HOTBED_POLICY_MEMORY_MB: '3' })).toThrow(
      'did you mean HOTBED_POLICY_MEMORY_MIB?',
    );
  });
});
