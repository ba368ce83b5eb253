import { EngineFault, toEngineFault } from './engine.errors';
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
  SampledToken,
  SampleOptions,
  SampleRequest,
  SampleResult,
  TenantStats,
} from './engine.types';
import type { NativeEngine } from './native-addon';

/** The addon behind the contract: plain errors become `EngineFault`, an `AbortSignal` becomes a cancel. */
export class AddonEngine implements Engine {
  private disposing: Promise<void> | null = null;

  constructor(private readonly native: NativeEngine) {}

  info(): EngineInfo {
    return answer(() => this.native.info());
  }

  stats(): EngineStats {
    return answer(() => this.native.stats());
  }

  createAdapter(spec: AdapterSpec, tenant: string | null = null): Promise<AdapterHandle> {
    return settle(this.native.createAdapter(spec, tenant));
  }

  specOf(adapter: AdapterHandle): AdapterSpec {
    return answer(() => this.native.specOf(adapter));
  }

  dropAdapter(adapter: AdapterHandle): Promise<void> {
    return settle(this.native.dropAdapter(adapter));
  }

  pin(adapter: AdapterHandle): Promise<PolicyHandle> {
    return settle(this.native.pin(adapter));
  }

  release(policy: PolicyHandle): void {
    answer(() => this.native.release(policy));
  }

  async sample(request: SampleRequest, { signal, onTokens }: SampleOptions = {}): Promise<SampleResult> {
    if (signal?.aborted) throw new EngineFault('cancelled', 'the sampling call was cancelled before it began');
    const thrown: unknown[] = [];
    const listener = (tokens: SampledToken[]) => {
      if (thrown.length > 0) return;
      try {
        onTokens?.(tokens, stop);
      } catch (error) {
        thrown.push(error);
        cancel();
      }
    };
    const call = this.native.sample(request, onTokens === undefined ? null : listener);
    // A refused request has no id; a disposed engine has rejected the call already.
    const isHere = () => call.id !== 0 && this.disposing === null;
    const cancel = () => {
      if (isHere()) this.native.cancel(call.id);
    };
    const stop = (sequence: number, length: number) => {
      if (isHere()) answer(() => this.native.stopSequence(call.id, sequence, length));
    };
    signal?.addEventListener('abort', cancel, { once: true });
    try {
      const result = await settle(call.result);
      if (thrown.length === 0) return result;
    } catch (error) {
      if (thrown.length === 0) throw error;
    } finally {
      signal?.removeEventListener('abort', cancel);
    }
    throw thrown[0];
  }

  forward(
    adapter: AdapterHandle | null,
    loss: Loss,
    datums: readonly Datum[],
    tenant: string | null = null,
  ): Promise<ForwardBackwardResult> {
    return settle(this.native.forward(adapter, loss, datums, tenant));
  }

  forwardBackward(adapter: AdapterHandle, loss: Loss, datums: readonly Datum[]): Promise<ForwardBackwardResult> {
    return settle(this.native.forwardBackward(adapter, loss, datums));
  }

  optimStep(adapter: AdapterHandle, params: AdamParams): Promise<OptimStepResult> {
    return settle(this.native.optimStep(adapter, params));
  }

  stateDigest(adapter: AdapterHandle, opIndex: string): Promise<string> {
    return settle(this.native.stateDigest(adapter, opIndex));
  }

  weightsDigest(policy: PolicyHandle): Promise<string> {
    return settle(this.native.weightsDigest(policy));
  }

  snapshot(adapter: AdapterHandle, opIndex: string, path: string): Promise<AdapterFile> {
    return settle(this.native.snapshot(adapter, opIndex, path));
  }

  restore(
    path: string,
    tenant: string | null = null,
  ): Promise<{ adapter: AdapterHandle; opIndex: string; spec: AdapterSpec }> {
    return settle(this.native.restore(path, tenant));
  }

  exportWeights(policy: PolicyHandle, path: string): Promise<AdapterFile> {
    return settle(this.native.exportWeights(policy, path));
  }

  peftConfig(policy: PolicyHandle): string {
    return answer(() => this.native.peftConfig(policy));
  }

  async importPeft(
    folder: string,
    seed: string,
    tenant: string | null = null,
  ): Promise<{ adapter: AdapterHandle; spec: AdapterSpec }> {
    const { adapter, spec } = await settle(this.native.importPeft(folder, seed, tenant));
    return { adapter, spec };
  }

  async tensors(adapter: AdapterHandle, what: 'weight' | 'm' | 'v' | 'gradient'): Promise<Map<string, Float32Array>> {
    return new Map(await settle(this.native.tensors(adapter, what)));
  }

  logits(policy: PolicyHandle | null, tokens: Int32Array): Promise<Float32Array> {
    return settle(this.native.logits(policy, tokens));
  }

  setTenantWeight(tenant: string, weight: number): void {
    answer(() => this.native.setTenantWeight(tenant, weight));
  }

  tenants(): Promise<TenantStats[]> {
    return settle(this.native.tenants());
  }

  adapterMemory(adapter: AdapterHandle): Promise<AdapterMemory> {
    return settle(this.native.adapterMemory(adapter));
  }

  policyBytes(policy: PolicyHandle): number {
    return answer(() => this.native.policyBytes(policy));
  }

  dispose(): Promise<void> {
    this.disposing ??= settle(this.native.dispose());
    return this.disposing;
  }
}

function answer<T>(call: () => T): T {
  try {
    return call();
  } catch (error) {
    throw toEngineFault(error);
  }
}

function settle<T>(result: Promise<T>): Promise<T> {
  return result.catch((error: unknown) => {
    throw toEngineFault(error);
  });
}
