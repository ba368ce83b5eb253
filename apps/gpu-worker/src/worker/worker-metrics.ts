import { Gauge, type Registry } from 'prom-client';
import type { Worker } from './worker';

const GAUGES: Record<keyof ReturnType<Worker['counts']>, [name: string, help: string]> = {
  adapters: ['hotbed_worker_adapters', 'adapters leased by this worker'],
  openPrompts: ['hotbed_worker_open_prompts', 'prompts being sampled or waiting for their policy state'],
  policyStates: ['hotbed_worker_policy_states', 'policy states kept ready'],
  policyBytes: ['hotbed_worker_policy_bytes', 'bytes of policy states kept ready, shared ones included'],
};

export function registerWorkerMetrics(worker: Worker, registry: Registry): void {
  for (const [count, [name, help]] of Object.entries(GAUGES) as [keyof typeof GAUGES, [string, string]][]) {
    new Gauge({
      name,
      help,
      registers: [registry],
      collect() {
        this.set(worker.counts()[count]);
      },
    });
  }
}
