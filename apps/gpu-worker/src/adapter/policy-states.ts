import type { Engine, PolicyHandle } from '#hotbed/engine';

/** A policy state in use: it stays in the engine until `done` was called. */
export interface PolicyInUse {
  policy: PolicyHandle;
  done(): void;
}

interface Entry {
  policy: Promise<PolicyHandle>;
  users: number;
  /** 0 until it is made. */
  bytes: number;
}

/**
 * The policy states kept ready to sample from, by adapter and by the operation that gave them their weights. Those not
 * in use leave in the order of their last use once all together take more than `capacityBytes`; what was left out is
 * derived again. Each counts with its A and B, also while a hot adapter still shares them.
 */
export class PolicyStates {
  private readonly entries = new Map<string, Entry>();

  constructor(
    private readonly engine: Pick<Engine, 'release' | 'policyBytes'>,
    private readonly capacityBytes: number,
  ) {}

  get size(): number {
    return this.entries.size;
  }

  get bytes(): number {
    let bytes = 0;
    for (const entry of this.entries.values()) bytes += entry.bytes;
    return bytes;
  }

  /** The state kept under this key, else the one that `make` gives; concurrent callers share the making. */
  async use(adapterId: string, weightsIndex: bigint, make: () => Promise<PolicyHandle>): Promise<PolicyInUse> {
    const key = keyOf(adapterId, weightsIndex);
    const entry = this.entries.get(key) ?? { policy: make(), users: 0, bytes: 0 };
    this.touch(key, entry);
    entry.users++;
    try {
      const policy = await entry.policy;
      if (entry.bytes === 0) {
        entry.bytes = this.engine.policyBytes(policy);
        this.trim();
      }
      let inUse = true;
      return {
        policy,
        done: () => {
          if (inUse) this.leave(key, entry);
          inUse = false;
        },
      };
    } catch (error) {
      entry.users--;
      if (this.entries.get(key) === entry) this.entries.delete(key);
      throw error;
    }
  }

  /** Takes over a pinned state. Where one is kept already, the new one is released. */
  offer(adapterId: string, weightsIndex: bigint, policy: PolicyHandle): void {
    const key = keyOf(adapterId, weightsIndex);
    const kept = this.entries.get(key);
    if (kept !== undefined) {
      this.engine.release(policy);
      this.touch(key, kept);
      return;
    }
    this.touch(key, { policy: Promise.resolve(policy), users: 0, bytes: this.engine.policyBytes(policy) });
    this.trim();
  }

  /** Lets go of the one that nobody has used for longest. @returns whether there was one that nobody uses now. */
  async releaseOldest(): Promise<boolean> {
    for (const [key, entry] of this.entries) {
      if (entry.users > 0) continue;
      this.remove(key, entry);
      await entry.policy.catch(() => undefined);
      return true;
    }
    return false;
  }

  /** Lets go of states of `adapterId` that lie after `weightsIndex`: what is not recorded is not state. */
  forgetAfter(adapterId: string, weightsIndex: bigint): void {
    for (const [key, entry] of [...this.entries]) {
      const [owner, index] = key.split('@') as [string, string];
      if (owner === adapterId && BigInt(index) > weightsIndex) this.remove(key, entry);
    }
  }

  /** Lets go of every state of `adapterId`; those in use go when their users are done. */
  forget(adapterId: string): void {
    this.forgetAfter(adapterId, -1n);
  }

  private touch(key: string, entry: Entry): void {
    this.entries.delete(key);
    this.entries.set(key, entry);
  }

  private leave(key: string, entry: Entry): void {
    entry.users--;
    if (this.entries.get(key) === entry) this.trim();
    else if (entry.users === 0) this.release(entry);
  }

  private trim(): void {
    let { bytes } = this;
    for (const [key, entry] of this.entries) {
      if (bytes <= this.capacityBytes) return;
      if (entry.users > 0) continue;
      bytes -= entry.bytes;
      this.remove(key, entry);
    }
  }

  private remove(key: string, entry: Entry): void {
    this.entries.delete(key);
    if (entry.users === 0) this.release(entry);
  }

  private release(entry: Entry): void {
    entry.policy.then(
      (policy) => this.engine.release(policy),
      () => undefined,
    );
  }
}

const keyOf = (adapterId: string, weightsIndex: bigint): string => `${adapterId}@${weightsIndex}`;
