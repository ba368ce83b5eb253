import type { Engine, EngineStats, EvictingEngine, TenantStats } from '#hotbed/engine';
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
  samplingFlops: ['hotbed_engine_sampling_flops_total', 'FLOPs of sampling steps'],
  trainingFlops: ['hotbed_engine_training_flops_total', 'FLOPs of training passes'],
  overdueServices: ['hotbed_engine_overdue_services_total', 'times that waiting too long decided between both'],
  busyRefusals: ['hotbed_engine_busy_refusals_total', 'calls refused because too much was pending'],
};

const GAUGES: Partial<Record<StatName, [name: string, help: string]>> = {
  adapters: ['hotbed_engine_adapters', 'adapters in memory'],
  policies: ['hotbed_engine_policies', 'pinned policy states in memory'],
  activeSequences: ['hotbed_engine_active_sequences', 'sequences being sampled'],
  kvBytes: ['hotbed_engine_kv_bytes', 'bytes of key/value pages in use'],
  prefixPages: ['hotbed_engine_prefix_pages', 'pages that hold prefix blocks, in use or idle'],
  adapterBytes: ['hotbed_engine_adapter_bytes', 'bytes of adapters and policy states'],
  stateBytes: ['hotbed_engine_state_bytes', 'bytes of training states in memory'],
  inFlightBytes: ['hotbed_engine_in_flight_bytes', 'bytes of gradients that calls in flight started from'],
  policyBytes: ['hotbed_engine_policy_bytes', 'bytes of policy states that no adapter in memory shares'],
  packedBytes: ['hotbed_engine_packed_bytes', "bytes of the kernels' own forms of adapters in use"],
  kvAllocatedBytes: ['hotbed_engine_kv_allocated_bytes', 'bytes of key/value pages taken from the system'],
  scratchBytes: ['hotbed_engine_scratch_bytes', 'bytes of activations and scratch'],
  pendingDataBytes: ['hotbed_engine_pending_data_bytes', 'bytes of data of pending training calls'],
  pendingSamplingCalls: ['hotbed_engine_pending_sampling_calls', 'sampling calls accepted and not ended'],
  pendingSamplingTokens: ['hotbed_engine_pending_sampling_tokens', 'their tokens, prompt and all that may be drawn'],
  pendingTrainingRows: ['hotbed_engine_pending_training_rows', 'rows of training calls accepted and not ended'],
  oldestSamplingMs: ['hotbed_engine_oldest_sampling_ms', 'age of the oldest pending sampling call'],
  oldestTrainingMs: ['hotbed_engine_oldest_training_ms', 'age of the oldest pending training call'],
  maxDecodeWaitFlops: ['hotbed_engine_max_decode_wait_flops', 'most training that a sampling step has waited for'],
};

type TenantCount = Exclude<keyof TenantStats, 'tenant'>;

const TENANT_COUNTERS: Partial<Record<TenantCount, [name: string, help: string]>> = {
  samplingFlops: ['hotbed_tenant_sampling_flops_total', 'FLOPs of sampling steps by tenant'],
  trainingFlops: ['hotbed_tenant_training_flops_total', 'FLOPs of training passes by tenant'],
  samplingSteps: ['hotbed_tenant_sampling_steps_total', 'sampling steps in which the tenant had rows'],
  trainingPasses: ['hotbed_tenant_training_passes_total', 'training passes in which the tenant had data'],
  overdueServices: ['hotbed_tenant_overdue_services_total', 'places that the tenant got for waiting too long'],
  busyRefusals: ['hotbed_tenant_busy_refusals_total', 'calls of the tenant refused because too much was pending'],
};

const TENANT_GAUGES: Partial<Record<TenantCount, [name: string, help: string]>> = {
  weight: ['hotbed_tenant_weight', "the tenant's part of contested work, relative to others'"],
  adapters: ['hotbed_tenant_adapters', 'adapters of the tenant in memory'],
  samplingLag: ['hotbed_tenant_sampling_lag_flops', 'how far behind the most served tenant of the last step'],
  trainingLag: ['hotbed_tenant_training_lag_flops', 'how far behind the most served tenant of the last pass'],
  pendingSamplingCalls: ['hotbed_tenant_pending_sampling_calls', 'sampling calls of the tenant not ended'],
  pendingTrainingRows: ['hotbed_tenant_pending_training_rows', 'training rows of the tenant not ended'],
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
  for (const [count, [name, help]] of Object.entries(TENANT_COUNTERS) as [TenantCount, [string, string]][]) {
    new Counter({
      name,
      help,
      labelNames: ['tenant'],
      registers: [registry],
      async collect() {
        this.reset();
        for (const tenant of await engine.tenants()) this.inc({ tenant: tenant.tenant }, tenant[count]);
      },
    });
  }
  for (const [count, [name, help]] of Object.entries(TENANT_GAUGES) as [TenantCount, [string, string]][]) {
    new Gauge({
      name,
      help,
      labelNames: ['tenant'],
      registers: [registry],
      async collect() {
        for (const tenant of await engine.tenants()) this.set({ tenant: tenant.tenant }, tenant[count]);
      },
    });
  }
}

/** Idle adapters that left memory, and came back. */
export function registerEvictionMetrics(engine: EvictingEngine, registry: Registry): void {
  const counters: [name: string, help: string, read: () => number][] = [
    ['hotbed_evictions_total', 'idle adapters written to snapshots', () => engine.evictionStats().evictions],
    ['hotbed_eviction_restores_total', 'adapters read back from snapshots', () => engine.evictionStats().restores],
    ['hotbed_eviction_faults_total', 'snapshots not written or not read', () => engine.evictionStats().faults],
  ];
  for (const [name, help, read] of counters) {
    new Counter({
      name,
      help,
      registers: [registry],
      collect() {
        this.reset();
        this.inc(read());
      },
    });
  }
  new Gauge({
    name: 'hotbed_cold_adapters',
    help: 'adapters that are in their snapshots now',
    registers: [registry],
    collect() {
      this.set(engine.evictionStats().cold);
    },
  });
}
