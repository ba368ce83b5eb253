import { collectDefaultMetrics, Registry } from 'prom-client';

/**
 * The process's metrics registry, with Node's own figures. One per process (AppHost.metrics), never prom-client's global
 * one: tests and several hosts in a process would collide there.
 */
export function createMetrics(labels: Record<string, string> = {}): Registry {
  const registry = new Registry();
  registry.setDefaultLabels(labels);
  collectDefaultMetrics({ register: registry, prefix: 'hotbed_' });
  return registry;
}
