import type { Engine, EngineStats } from '#hotbed/engine';
import { Counter, Gauge, type Registry } from 'prom-client';

type StatName = keyof EngineStats;

const COUNTERS: Partial<Record<StatName, [name: string, help: string]>> = {
  decodeSteps: ['hotbed_engine_decode_steps_total', 'sampling steps'],
  mixedDecodeSteps: ['hotbed_engine_mixed_decode_steps_total', 'sampling steps with rows of two policies or more'],
  decodeRows: ['hotbed_engine_decode_rows_total', 'rows of all sampling steps'],
  trainPasses: ['hotbed_engine_train_passes_total', 'training passes'],
  mixedTrainPasses: ['hotbed_engine_mixed_train_passes_total', 'training passes with two adapters or more'],
  trainPassAdapters: ['hotbed_engine_train_pass_adapters_total', 'adapters summed over training passes'],
  tokensSampled: ['hotbed_engine_tokens_sampled_total', 'tokens drawn'],
  tokensPrefilled: ['hotbed_engine_tokens_prefilled_total', 'prompt tokens computed'],
  prefixHitTokens: ['hotbed_engine_prefix_hit_tokens_total', 'prompt tokens found in the prefix cache'],
  prefixMissTokens: ['hotbed_engine_prefix_miss_tokens_total', 'tokens of whole prefix blocks that had to be computed'],
  prefixEvictions: ['hotbed_engine_prefix_evictions_total', 'prefix blocks given up for want of pages'],
  preemptions: ['hotbed_engine_preemptions_total', 'sequences that gave up their pages and computed them again'],
  tokensTrained: ['hotbed_engine_tokens_trained_total', 'target positions trained on'],
};

const GAUGES: Partial<Record<StatName, [name: string, help: string]>> = {
  adapters: ['hotbed_engine_adapters', 'adapters in memory'],
  policies: ['hotbed_engine_policies', 'pinned policy states in memory'],
  activeSequences: ['hotbed_engine_active_sequences', 'sequences being sampled'],
  kvBytes: ['hotbed_engine_kv_bytes', 'bytes of key/value pages in use'],
  prefixPages: ['hotbed_engine_prefix_pages', 'pages that hold prefix blocks, in use or idle'],
  adapterBytes: ['hotbed_engine_adapter_bytes', 'bytes of adapters and policy states'],
};

/** Publishes the engine's own counts; they are read when somebody asks. */
export function registerEngineMetrics(engine: Engine, registry: Registry): void {
  for (const [stat, [name, help]] of Object.entries(COUNTERS) as [StatName, [string, string]][]) {
    new Counter({
      name,
      help,
      registers: [registry],
      collect() {
        this.reset();
        this.inc(engine.stats()[stat]);
      },
    });
  }
  for (const [stat, [name, help]] of Object.entries(GAUGES) as [StatName, [string, string]][]) {
    new Gauge({
      name,
      help,
      registers: [registry],
      collect() {
        this.set(engine.stats()[stat]);
      },
    });
  }
}
