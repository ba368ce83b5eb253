import { mkdtemp, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { EngineFault } from './engine.errors';
import type {
  AdamParams,
  AdapterFile,
  AdapterHandle,
  AdapterMemory,
  AdapterSpec,
  Datum,
  Engine,
  EngineInfo,
  EngineStats,
  ForwardBackwardResult,
  Loss,
  OptimStepResult,
  PolicyHandle,
  SampleOptions,
  SampleRequest,
  SampleResult,
  TenantStats,
} from './engine.types';

export interface EvictionOptions {
  /** Above so many bytes of training states the adapters idle for longest leave memory. */
  adapterMemoryBytes: number;
  /** Snapshots go into a folder of their own below this one; it must exist. */
  folder: string;
}

export interface EvictionStats {
  /** Adapters that are in their snapshots now. */
  cold: number;
  evictions: number;
  restores: number;
  /** Snapshots that could not be written (the adapter stayed) or read (its calls were rejected). */
  faults: number;
}

/** What a caller's handle stands for. */
interface Slot {
  readonly handle: AdapterHandle;
  readonly spec: AdapterSpec;
  readonly tenant: string | null;
  /** The engine's handle; null = in the snapshot. */
  native: AdapterHandle | null;
  snapshot: string | null;
  bytes: number;
  /** Calls that have not settled; an adapter with any is not idle. */
  calls: number;
  /** Counts every call: an eviction sees that one came meanwhile. */
  arrivals: number;
  /** The greater, the more recent. */
  lastUse: number;
  evicting: boolean;
  restoring: boolean;
  dropped: boolean;
  /** Calls that came while it was not in memory, in their order. */
  waiting: { issue: (native: AdapterHandle) => void; reject: (error: unknown) => void }[];
}

/** After a snapshot could not be written the next try has to wait so long. */
const TRY_AGAIN_MS = 1000;

/**
 * An engine whose idle adapters leave memory for snapshots and come back when they are called.
 *
 * 1. Handles stay; a caller sees no difference but the time that reading a snapshot takes.
 * 2. Calls on one adapter apply in the order in which they were made, wherever it was.
 * 3. A snapshot holds the whole training state, so bytes and digests are those of an adapter that never left.
 * 4. An adapter with a call in flight does not leave, and one that is called while its snapshot is written stays.
 * 5. A snapshot that cannot be written leaves the adapter in memory; one that cannot be read rejects the calls that
 *    wait with the engine's fault (`io`, `invalid_file`), and the next call tries again.
 */
export class EvictingEngine implements Engine {
  private readonly slots = new Map<AdapterHandle, Slot>();
  private nextHandle = 1;
  private nextFile = 1;
  private uses = 0;
  private trimming = false;
  private tryAgainAtMs = 0;
  private readonly counts = { evictions: 0, restores: 0, faults: 0 };

  private constructor(
    private readonly engine: Engine,
    private readonly adapterMemoryBytes: number,
    private readonly folder: string,
  ) {}

  /** @param engine owned from now on: adapters are made and dropped through the result only, which also disposes it */
  static async over(engine: Engine, options: EvictionOptions): Promise<EvictingEngine> {
    const folder = await mkdtemp(join(options.folder, 'idle-adapters-'));
    return new EvictingEngine(engine, options.adapterMemoryBytes, folder);
  }

  evictionStats(): EvictionStats {
    const cold = [...this.slots.values()].filter((slot) => slot.native === null).length;
    return { cold, ...this.counts };
  }

  /**
   * Writes an idle adapter into its snapshot and frees its memory; one that is at work, or gone already, is left alone.
   * @returns whether it is out of memory now. @throws EngineFault `io`: the adapter stays as it is.
   */
  async evict(adapter: AdapterHandle): Promise<boolean> {
    const slot = this.slotOf(adapter);
    if (slot.native === null) return !slot.restoring;
    if (slot.calls > 0 || slot.evicting) return false;
    return this.moveOut(slot, slot.native);
  }

  createAdapter(spec: AdapterSpec, tenant: string | null = null): Promise<AdapterHandle> {
    return this.adopt(tenant, this.engine.createAdapter(spec, tenant));
  }

  specOf(adapter: AdapterHandle): AdapterSpec {
    return this.slotOf(adapter).spec;
  }

  async dropAdapter(adapter: AdapterHandle): Promise<void> {
    const slot = this.slotOf(adapter);
    this.slots.delete(adapter);
    slot.dropped = true;
    for (const { reject } of slot.waiting.splice(0)) {
      reject(new EngineFault('cancelled', 'adapter: dropped while the call was pending'));
    }
    // While it is being restored the end of that drops it.
    if (slot.native !== null) await this.engine.dropAdapter(slot.native);
    if (slot.snapshot !== null && !slot.restoring) await rm(slot.snapshot, { force: true });
  }

  pin(adapter: AdapterHandle): Promise<PolicyHandle> {
    return this.call(adapter, (native) => this.engine.pin(native));
  }

  forward(
    adapter: AdapterHandle | null,
    loss: Loss,
    datums: readonly Datum[],
    tenant: string | null = null,
  ): Promise<ForwardBackwardResult> {
    if (adapter === null) return this.engine.forward(null, loss, datums, tenant);
    return this.call(adapter, (native) => this.engine.forward(native, loss, datums, tenant));
  }

  forwardBackward(adapter: AdapterHandle, loss: Loss, datums: readonly Datum[]): Promise<ForwardBackwardResult> {
    return this.call(adapter, (native) => this.engine.forwardBackward(native, loss, datums));
  }

  optimStep(adapter: AdapterHandle, params: AdamParams): Promise<OptimStepResult> {
    return this.call(adapter, (native) => this.engine.optimStep(native, params));
  }

  stateDigest(adapter: AdapterHandle, opIndex: string): Promise<string> {
    return this.call(adapter, (native) => this.engine.stateDigest(native, opIndex));
  }

  snapshot(adapter: AdapterHandle, opIndex: string, path: string): Promise<AdapterFile> {
    return this.call(adapter, (native) => this.engine.snapshot(native, opIndex, path));
  }

  tensors(adapter: AdapterHandle, what: 'weight' | 'm' | 'v' | 'gradient'): Promise<Map<string, Float32Array>> {
    return this.call(adapter, (native) => this.engine.tensors(native, what));
  }

  /** Of an adapter that is not in memory: nothing. It stays where it is. */
  async adapterMemory(adapter: AdapterHandle): Promise<AdapterMemory> {
    const { native } = this.slotOf(adapter);
    if (native !== null) return this.engine.adapterMemory(native);
    return { stateBytes: 0, inFlightBytes: 0, policyBytes: 0, packedBytes: 0 };
  }

  async restore(
    path: string,
    tenant: string | null = null,
  ): Promise<{ adapter: AdapterHandle; opIndex: string; spec: AdapterSpec }> {
    const { adapter: native, ...rest } = await this.engine.restore(path, tenant);
    return { adapter: await this.adopt(tenant, Promise.resolve(native)), ...rest };
  }

  async importPeft(
    folder: string,
    seed: string,
    tenant: string | null = null,
  ): Promise<{ adapter: AdapterHandle; spec: AdapterSpec }> {
    const { adapter: native, spec } = await this.engine.importPeft(folder, seed, tenant);
    return { adapter: await this.adopt(tenant, Promise.resolve(native)), spec };
  }

  info(): EngineInfo {
    return this.engine.info();
  }

  stats(): EngineStats {
    return this.engine.stats();
  }

  release(policy: PolicyHandle): void {
    this.engine.release(policy);
  }

  sample(request: SampleRequest, options?: SampleOptions): Promise<SampleResult> {
    return this.engine.sample(request, options);
  }

  weightsDigest(policy: PolicyHandle): Promise<string> {
    return this.engine.weightsDigest(policy);
  }

  exportWeights(policy: PolicyHandle, path: string): Promise<AdapterFile> {
    return this.engine.exportWeights(policy, path);
  }

  peftConfig(policy: PolicyHandle): string {
    return this.engine.peftConfig(policy);
  }

  logits(policy: PolicyHandle | null, tokens: Int32Array): Promise<Float32Array> {
    return this.engine.logits(policy, tokens);
  }

  setTenantWeight(tenant: string, weight: number): void {
    this.engine.setTenantWeight(tenant, weight);
  }

  tenants(): Promise<TenantStats[]> {
    return this.engine.tenants();
  }

  policyBytes(policy: PolicyHandle): number {
    return this.engine.policyBytes(policy);
  }

  async dispose(): Promise<void> {
    await this.engine.dispose();
    await rm(this.folder, { recursive: true, force: true });
  }

  private async adopt(tenant: string | null, made: Promise<AdapterHandle>): Promise<AdapterHandle> {
    const native = await made;
    const { stateBytes } = await this.engine.adapterMemory(native);
    const handle = this.nextHandle++ as AdapterHandle;
    this.slots.set(handle, {
      handle,
      spec: this.engine.specOf(native),
      tenant,
      native,
      snapshot: null,
      bytes: stateBytes,
      calls: 0,
      arrivals: 0,
      lastUse: ++this.uses,
      evicting: false,
      restoring: false,
      dropped: false,
      waiting: [],
    });
    this.trim();
    return handle;
  }

  private slotOf(adapter: AdapterHandle): Slot {
    const slot = this.slots.get(adapter);
    if (slot !== undefined) return slot;
    throw new EngineFault('invalid_argument', `adapter: handle ${adapter} is unknown or dropped`);
  }

  /** Issues the call at once where the adapter is in memory, else in its turn once it is back. */
  private async call<T>(adapter: AdapterHandle, run: (native: AdapterHandle) => Promise<T>): Promise<T> {
    const slot = this.slotOf(adapter);
    slot.calls++;
    slot.arrivals++;
    slot.lastUse = ++this.uses;
    try {
      if (slot.native !== null) return await run(slot.native);
      return await new Promise<T>((resolve, reject) => {
        slot.waiting.push({ issue: (native) => void run(native).then(resolve, reject), reject });
        void this.bringBack(slot);
      });
    } finally {
      slot.calls--;
      this.trim();
    }
  }

  private async bringBack(slot: Slot): Promise<void> {
    if (slot.restoring || slot.snapshot === null) return;
    const path = slot.snapshot;
    slot.restoring = true;
    try {
      const { adapter } = await this.engine.restore(path, slot.tenant);
      slot.restoring = false;
      this.counts.restores++;
      slot.snapshot = null;
      if (slot.dropped) await this.engine.dropAdapter(adapter);
      else {
        slot.native = adapter;
        // In one go: no later call can come between.
        for (const { issue } of slot.waiting.splice(0)) issue(adapter);
      }
      await rm(path, { force: true });
    } catch (error) {
      slot.restoring = false;
      this.counts.faults++;
      for (const { reject } of slot.waiting.splice(0)) reject(error);
    }
  }

  private async moveOut(slot: Slot, native: AdapterHandle): Promise<boolean> {
    const path = join(this.folder, `${slot.handle}-${this.nextFile++}`);
    const { arrivals } = slot;
    slot.evicting = true;
    try {
      await this.engine.snapshot(native, '0', path);
    } catch (error) {
      await rm(path, { force: true }).catch(() => undefined);
      if (slot.dropped) return false;
      this.counts.faults++;
      throw error;
    } finally {
      slot.evicting = false;
    }
    if (slot.dropped || slot.arrivals !== arrivals) {
      await rm(path, { force: true });
      return false;
    }
    slot.native = null;
    slot.snapshot = path;
    this.counts.evictions++;
    await this.engine.dropAdapter(native);
    return true;
  }

  /** Lets the adapters idle for longest go until the rest fits; one at a time, in the background. */
  private trim(): void {
    if (this.trimming || Date.now() < this.tryAgainAtMs) return;
    const hot = [...this.slots.values()].filter((slot) => slot.native !== null);
    if (hot.reduce((bytes, slot) => bytes + slot.bytes, 0) <= this.adapterMemoryBytes) return;
    const [idle] = hot.filter((slot) => slot.calls === 0 && !slot.evicting).sort((a, b) => a.lastUse - b.lastUse);
    if (idle === undefined || idle.native === null) return;
    this.trimming = true;
    this.moveOut(idle, idle.native)
      .catch(() => {
        this.tryAgainAtMs = Date.now() + TRY_AGAIN_MS;
      })
      .finally(() => {
        this.trimming = false;
        this.trim();
      });
  }
}
