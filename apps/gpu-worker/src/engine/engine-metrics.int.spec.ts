import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { EvictingEngine, type AdapterHandle } from '#hotbed/engine';
import { A_SPEC, openTinyBase } from '#hotbed/fold/testing';
import { Registry } from 'prom-client';
import { registerEngineMetrics, registerEvictionMetrics } from './engine-metrics';

let folder: string;
let engine: EvictingEngine;
const registry = new Registry();

beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'hotbed-metrics-'));
  engine = await EvictingEngine.over(await openTinyBase(), { adapterMemoryBytes: 1 << 30, folder });
  registerEngineMetrics(engine, registry);
  registerEvictionMetrics(engine, registry);
});
afterAll(async () => {
  await engine.dispose();
  await rm(folder, { recursive: true });
});

/** The figures now, by name and tenant. */
async function figures(): Promise<Map<string, number>> {
  const lines = (await registry.metrics()).split('\n').filter((line) => line !== '' && !line.startsWith('#'));
  return new Map(lines.map((line) => [line.slice(0, line.lastIndexOf(' ')), Number(line.split(' ').at(-1))]));
}

const train = (adapter: AdapterHandle) =>
  engine.forwardBackward(adapter, { name: 'cross_entropy', clipLow: null, clipHigh: null }, [
    {
      prompt: Int32Array.of(1, 5),
      branches: [{ tokens: Int32Array.of(7, 8), weights: Float32Array.of(1, 1), logprobs: null, advantages: null }],
    },
  ]);

describe('what a worker publishes of its engine', () => {
  it('says who was served, what memory belongs to whom, and what left it', async () => {
    engine.setTenantWeight('a', 3);
    const adapter = await engine.createAdapter(A_SPEC, 'a');
    await train(adapter);
    await engine.sample({
      policy: null,
      prompt: Int32Array.of(1, 5),
      seeds: ['1'],
      params: { temperature: 1, topK: 0, topP: 1, maxTokens: 2, stopTokenIds: [] },
      promptLogprobs: false,
      tenant: 'b',
    });
    const { stateBytes } = await engine.adapterMemory(adapter);
    const busy = await figures();
    expect(busy.get('hotbed_tenant_weight{tenant="a"}')).toBe(3);
    expect(busy.get('hotbed_tenant_training_flops_total{tenant="a"}')).toBeGreaterThan(0);
    expect(busy.get('hotbed_tenant_training_passes_total{tenant="a"}')).toBe(1);
    expect(busy.get('hotbed_tenant_sampling_flops_total{tenant="a"}')).toBe(0);
    expect(busy.get('hotbed_tenant_sampling_steps_total{tenant="b"}')).toBe(2);
    expect(busy.get('hotbed_engine_sampling_flops_total')).toBe(
      busy.get('hotbed_tenant_sampling_flops_total{tenant="b"}'),
    );
    expect(busy.get('hotbed_engine_state_bytes')).toBe(stateBytes);
    expect(busy.get('hotbed_engine_busy_refusals_total')).toBe(0);
    expect(busy.get('hotbed_engine_oldest_training_ms')).toBe(0);

    await engine.evict(adapter);
    const cold = await figures();
    expect(cold.get('hotbed_engine_state_bytes')).toBe(0);
    expect(cold.get('hotbed_cold_adapters')).toBe(1);
    expect(cold.get('hotbed_evictions_total')).toBe(1);
    await train(adapter);
    expect((await figures()).get('hotbed_eviction_restores_total')).toBe(1);
  });
});
