import type { BlobStore, EventStore } from '#hotbed/contracts';
import type { Engine } from '#hotbed/engine';
import { Leases } from '#hotbed/event-store';
import type { TestDatabase } from '#hotbed/event-store/testing';
import { silentLogger } from '#hotbed/runtime';
import { Failpoints } from '../failpoint/failpoints';
import { Worker, type WorkerOptions } from '../worker/worker';
import { TINY_BASE } from '#hotbed/fold/testing';

/** A worker inside the test's own process, on a real engine and a real database. */
export async function startTestWorker(
  database: TestDatabase,
  engine: Engine,
  options: Partial<WorkerOptions> & { blobs?: BlobStore; events?: EventStore } = {},
): Promise<Worker> {
  const { blobs = database.blobs, events = database.store, ...rest } = options;
  const worker = new Worker(
    {
      modelFolder: TINY_BASE,
      pollIntervalMs: 20,
      leaseTtlMs: 5000,
      adapterMemoryBytes: 1 << 30,
      policyMemoryBytes: 1 << 30,
      ...rest,
    },
    {
      engine,
      events,
      blobs,
      workList: database.workList,
      failpoints: new Failpoints(),
      logger: silentLogger(),
      register: (leases) => Leases.register({ ...leases, databaseUrl: database.url, pool: database.pool }),
    },
  );
  await worker.start();
  return worker;
}
