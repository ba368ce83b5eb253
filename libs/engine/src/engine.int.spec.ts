import { spawnSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import { copyFileSync, mkdtempSync, readFileSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { Worker } from 'node:worker_threads';
import canonicalize from 'canonicalize';
import { EngineFault } from './engine.errors';
import type {
  AdamParams,
  AdapterHandle,
  AdapterSpec,
  Branch,
  Datum,
  Engine,
  EngineOptions,
  Loss,
  PolicyHandle,
} from './engine.types';
import { TARGET_MODULES } from './engine.types';
import { DEFAULT_ENGINE_OPTIONS, openEngine } from './open-engine';

const ROOT = resolve(__dirname, '..', '..', '..');
const ADDON = join(ROOT, 'native', 'build', 'Release', 'hotbed.node');
const fixture = (name: string) => join(ROOT, 'native', 'test', 'fixtures', name);
const LLAMA = fixture('llama-gqa-f32');

const options = (modelFolder: string, rest: Partial<EngineOptions> = {}): EngineOptions => ({
  ...DEFAULT_ENGINE_OPTIONS,
  modelFolder,
  threads: 2,
  kvCacheMiB: 32,
  activationBudgetMiB: 32,
  ...rest,
});

const SPEC: AdapterSpec = {
  rank: 4,
  alpha: 6,
  rslora: false,
  targets: ['q', 'v', 'down'],
  seed: '18446744073709551615',
};
const CROSS_ENTROPY: Loss = { name: 'cross_entropy', clipLow: null, clipHigh: null };
const ADAM: AdamParams = { learningRate: 0.01, beta1: 0.9, beta2: 0.95, eps: 1e-8, weightDecay: 0.01, gradClipNorm: 1 };

const aDatum = (prompt: number[], ...completions: number[][]): Datum => ({
  prompt: Int32Array.from(prompt),
  branches: completions.map((tokens) => ({
    tokens: Int32Array.from(tokens),
    weights: Float32Array.from(tokens, (_, i) => 1 + i / 4),
    logprobs: null,
    advantages: null,
  })),
});
const DATUMS = [aDatum([1, 5, 6], [7, 8, 2], [9, 2]), aDatum([1], [3, 4])];

const sampling = (seeds: string[], maxTokens = 8) => ({
  policy: null as PolicyHandle | null,
  prompt: Int32Array.of(1, 5, 6),
  seeds,
  params: { temperature: 1, topK: 0, topP: 1, maxTokens, stopTokenIds: [2] },
  promptLogprobs: false,
});

const sha256 = (...parts: (string | Uint8Array)[]): Buffer => {
  const hash = createHash('sha256');
  for (const part of parts) hash.update(part);
  return hash.digest();
};
const u64 = (value: bigint): Buffer => {
  const bytes = Buffer.alloc(8);
  bytes.writeBigUInt64BE(value);
  return bytes;
};
const bytesOf = (values: Float32Array) => new Uint8Array(values.buffer, values.byteOffset, values.byteLength);

let engine: Engine;
let folder: string;

beforeAll(async () => {
  folder = mkdtempSync(join(tmpdir(), 'hotbed-engine-'));
  engine = await openEngine(options(LLAMA));
});

afterAll(async () => {
  await engine.dispose();
  rmSync(folder, { recursive: true });
});

/** An adapter with a step behind it and a gradient in flight: no part of its state is trivial. */
async function aTrainedAdapter(spec: AdapterSpec = SPEC): Promise<AdapterHandle> {
  const adapter = await engine.createAdapter(spec);
  await engine.forwardBackward(adapter, CROSS_ENTROPY, DATUMS);
  await engine.optimStep(adapter, ADAM);
  await engine.forwardBackward(adapter, CROSS_ENTROPY, DATUMS.slice(1));
  return adapter;
}

async function faultOf(call: Promise<unknown>): Promise<EngineFault> {
  const outcome: unknown = await call.then(
    () => 'resolved',
    (error: unknown) => error,
  );
  expect(outcome).toBeInstanceOf(EngineFault);
  return outcome as EngineFault;
}

describe('digests, computed a second time with node:crypto', () => {
  /** N8's order: layer, then module id, then A before B. */
  const order = (name: string): number => {
    const layer = Number(/layers\.(\d+)\./.exec(name)?.[1]);
    const module = TARGET_MODULES.findIndex((target) => name.includes(`.${target}_proj.`));
    return (layer * TARGET_MODULES.length + module) * 2 + (name.includes('lora_B') ? 1 : 0);
  };

  async function stateDigestTwin(adapter: AdapterHandle, spec: AdapterSpec, step: bigint, opIndex: bigint) {
    const { baseDigest, numericsId } = engine.info();
    const tensors = await Promise.all(
      (['weight', 'm', 'v', 'gradient'] as const).map((what) => engine.tensors(adapter, what)),
    );
    const names = [...(tensors[0]?.keys() ?? [])].sort((a, b) => order(a) - order(b));
    const modules = names.filter((name) => name.includes('lora_A')).map((a) => [a, a.replace('lora_A', 'lora_B')]);
    const digests = modules.flatMap((pair) =>
      tensors.flatMap((map) => pair.map((name) => sha256(bytesOf(map.get(name) ?? new Float32Array())))),
    );
    const identity = canonicalize({ ...spec, baseDigest, numericsId }) ?? '';
    return sha256('hotbed.state.1\0', u64(opIndex), u64(step), sha256(identity), ...digests).toString('hex');
  }

  it('state: after creation, after a backward pass, after a step, and with an accumulated gradient', async () => {
    const adapter = await engine.createAdapter(SPEC);
    const seen = new Set<string>();
    const check = async (step: bigint, opIndex: bigint) => {
      const digest = await engine.stateDigest(adapter, opIndex.toString());
      expect(digest).toBe(await stateDigestTwin(adapter, SPEC, step, opIndex));
      seen.add(digest);
    };
    await check(0n, 0n);
    await engine.forwardBackward(adapter, CROSS_ENTROPY, DATUMS);
    await check(0n, 1n);
    await engine.optimStep(adapter, ADAM);
    await check(1n, 2n);
    await engine.forwardBackward(adapter, CROSS_ENTROPY, DATUMS);
    await engine.forwardBackward(adapter, CROSS_ENTROPY, DATUMS);
    await check(1n, 18446744073709551615n);
    expect(seen.size).toBe(4);
    await engine.dropAdapter(adapter);
  });

  it('state: a number that JSON writes in its own way', async () => {
    const spec: AdapterSpec = { ...SPEC, alpha: 1.25e-7, rslora: true, targets: [...TARGET_MODULES.slice(0, 7)] };
    const adapter = await engine.createAdapter(spec);
    expect(await engine.stateDigest(adapter, '0')).toBe(await stateDigestTwin(adapter, spec, 0n, 0n));
    await engine.dropAdapter(adapter);
  });

  it('weights: the canonical safetensors of A and B, which is also the exported file', async () => {
    const adapter = await aTrainedAdapter();
    const policy = await engine.pin(adapter);
    const tensors = [...(await engine.tensors(adapter, 'weight'))].sort(([a], [b]) => (a < b ? -1 : 1));
    let at = 0;
    const fields = tensors.map(([name, values]) => {
      const rows = name.includes('lora_A') ? SPEC.rank : values.length / SPEC.rank;
      const begin = at;
      at += values.byteLength;
      return `${JSON.stringify(name)}:{"dtype":"F32","shape":[${rows},${values.length / rows}],"data_offsets":[${begin},${at}]}`;
    });
    let header = `{${fields.join(',')}}`;
    header = header.padEnd(Math.ceil(header.length / 8) * 8, ' ');
    const length = Buffer.alloc(8);
    length.writeBigUInt64LE(BigInt(header.length));
    const digest = sha256(length, header, ...tensors.map(([, values]) => bytesOf(values))).toString('hex');
    expect(await engine.weightsDigest(policy)).toBe(digest);

    const file = await engine.exportWeights(policy, join(folder, 'weights.safetensors'));
    expect(file.digest).toBe(digest);
    expect(sha256(readFileSync(file.path)).toString('hex')).toBe(digest);
    expect(readFileSync(file.path).byteLength).toBe(file.bytes);
    engine.release(policy);
    await engine.dropAdapter(adapter);
  });

  it('base: canonical config, every tensor and the tokenizer’s ids', () => {
    const bytes = readFileSync(join(LLAMA, 'model.safetensors'));
    const headerLength = Number(bytes.readBigUInt64LE(0));
    const header = JSON.parse(bytes.subarray(8, 8 + headerLength).toString()) as Record<
      string,
      { dtype: string; shape: number[]; data_offsets: [number, number] }
    >;
    const tensors = Object.entries(header)
      .filter(([name]) => name !== '__metadata__')
      .sort(([a], [b]) => (a < b ? -1 : 1))
      .map(
        ([
          name,
          {
            dtype,
            shape,
            data_offsets: [begin, end],
          },
        ]) => {
          const data = bytes.subarray(8 + headerLength + begin, 8 + headerLength + end);
          return [name, dtype, shape, sha256(data).toString('hex')];
        },
      );
    const config = {
      architecture: 'LlamaForCausalLM',
      contextLength: 128,
      headDim: 8,
      hiddenSize: 32,
      intermediateSize: 72,
      keyValueHeads: 2,
      layers: 2,
      mlpBias: false,
      oBias: false,
      qkNorm: false,
      qkvBias: false,
      queryHeads: 4,
      rmsNormEps: Math.fround(1e-5),
      rope: { factor: 1, highFreqFactor: 4, lowFreqFactor: 1, originalContextLength: 0, theta: 10000, type: 'default' },
      tiedHead: false,
      vocabularySize: 83,
    };
    const text = canonicalize({ config, tensors, tokenizerIds: null }) ?? '';
    expect(engine.info().baseDigest).toBe(sha256('hotbed.base.1\0', text).toString('hex'));
  });
});

describe('files', () => {
  it('a snapshot restores the whole state, also in another engine', async () => {
    const adapter = await aTrainedAdapter();
    const digest = await engine.stateDigest(adapter, '3');
    const file = await engine.snapshot(adapter, '3', join(folder, 'snapshot'));
    expect(sha256(readFileSync(file.path)).toString('hex')).toBe(file.digest);
    const other = await openEngine(options(LLAMA, { threads: 1 }));
    try {
      const restored = await other.restore(file.path);
      expect(restored).toMatchObject({ opIndex: '3', spec: SPEC });
      expect(other.specOf(restored.adapter)).toEqual(SPEC);
      expect(await other.stateDigest(restored.adapter, '3')).toBe(digest);
      // Both go on alike.
      await Promise.all([other.optimStep(restored.adapter, ADAM), engine.optimStep(adapter, ADAM)]);
      expect(await other.stateDigest(restored.adapter, '4')).toBe(await engine.stateDigest(adapter, '4'));
    } finally {
      await other.dispose();
    }
    expect(readdirSync(folder).filter((name) => name.endsWith('.tmp'))).toEqual([]);
    await engine.dropAdapter(adapter);
  });

  it('a snapshot of another base is refused', async () => {
    const adapter = await engine.createAdapter(SPEC);
    const file = await engine.snapshot(adapter, '0', join(folder, 'other-base'));
    const other = await openEngine(options(fixture('llama-tied-bf16')));
    const fault = await faultOf(other.restore(file.path));
    expect(fault.code).toBe('base_mismatch');
    expect(fault.message).toContain('baseDigest');
    await other.dispose();
    await engine.dropAdapter(adapter);
  });

  it('an exported adapter comes back through the PEFT layout with the same weights', async () => {
    const adapter = await aTrainedAdapter({ ...SPEC, rslora: true });
    const policy = await engine.pin(adapter);
    const peft = mkdtempSync(join(folder, 'peft-'));
    await engine.exportWeights(policy, join(peft, 'adapter_model.safetensors'));
    writeFileSync(join(peft, 'adapter_config.json'), engine.peftConfig(policy));
    expect(JSON.parse(engine.peftConfig(policy))).toMatchObject({
      peft_type: 'LORA',
      r: 4,
      lora_alpha: 6,
      use_rslora: true,
      target_modules: ['q_proj', 'v_proj', 'down_proj'],
    });
    const imported = await engine.importPeft(peft, SPEC.seed);
    expect(imported.spec).toEqual({ ...SPEC, rslora: true });
    const copy = await engine.pin(imported.adapter);
    expect(await engine.weightsDigest(copy)).toBe(await engine.weightsDigest(policy));
    expect(Math.max(...((await engine.tensors(imported.adapter, 'm')).values().next().value ?? []))).toBe(0);
  });

  it('an adapter made by PEFT loads', async () => {
    const { adapter, spec } = await engine.importPeft(join(LLAMA, 'adapter'), '5');
    expect(spec).toMatchObject({ rank: 4, alpha: 8, seed: '5' });
    expect(spec.targets).toHaveLength(7);
    await engine.dropAdapter(adapter);
  });

  it.each(['modules_to_save', 'use_dora'])('an adapter with %s is refused by name', async (key) => {
    const peft = mkdtempSync(join(folder, 'peft-'));
    copyFileSync(join(LLAMA, 'adapter', 'adapter_model.safetensors'), join(peft, 'adapter_model.safetensors'));
    const config = JSON.parse(readFileSync(join(LLAMA, 'adapter', 'adapter_config.json'), 'utf8')) as object;
    writeFileSync(join(peft, 'adapter_config.json'), JSON.stringify({ ...config, [key]: ['lm_head'] }));
    const fault = await faultOf(engine.importPeft(peft, '1'));
    expect(fault).toMatchObject({ code: 'invalid_file', retryable: false });
    expect(fault.message).toContain(key);
  });

  it('a disk that cannot be written to is a fault, and the adapter lives on', async () => {
    const adapter = await engine.createAdapter(SPEC);
    expect(await faultOf(engine.snapshot(adapter, '0', '/nowhere/snapshot'))).toMatchObject({
      code: 'io',
      retryable: true,
    });
    expect(await engine.stateDigest(adapter, '0')).toHaveLength(64);
    await engine.dropAdapter(adapter);
  });
});

describe('what a model folder says', () => {
  it('the seedling loads with the tokenizer’s size and its end token', async () => {
    const seedling = await openEngine(options(join(ROOT, 'models', 'seedling')));
    const info = seedling.info();
    expect(info).toMatchObject({
      architecture: 'LlamaForCausalLM',
      numericsId: 'f32-1',
      bosTokenId: 1,
      eosTokenIds: [2],
    });
    expect(info.tokenizerSize).toBe(info.vocabularySize);
    await seedling.dispose();
  });

  it('every end token of generation_config.json is known, and padding ids are never drawn', async () => {
    const model = mkdtempSync(join(folder, 'model-'));
    for (const file of ['config.json', 'model.safetensors']) copyFileSync(join(LLAMA, file), join(model, file));
    writeFileSync(join(model, 'generation_config.json'), '{"eos_token_id":[7,2]}');
    const vocab = Object.fromEntries(Array.from({ length: 11 }, (_, id) => [`token${id}`, id]));
    writeFileSync(join(model, 'tokenizer.json'), JSON.stringify({ model: { vocab }, added_tokens: [{ id: 11 }] }));
    const padded = await openEngine(options(model));
    expect(padded.info()).toMatchObject({ eosTokenIds: [2, 7], tokenizerSize: 12, vocabularySize: 83 });
    expect(padded.info().baseDigest).not.toBe(engine.info().baseDigest);
    const request = sampling(
      Array.from({ length: 16 }, (_, i) => String(i)),
      40,
    );
    for (const temperature of [0, 1, 50]) {
      const { sequences } = await padded.sample({ ...request, params: { ...request.params, temperature } });
      for (const { tokens, policyLogprobs } of sequences) {
        expect(Math.max(...tokens)).toBeLessThan(12);
        expect(policyLogprobs.every(Number.isFinite)).toBe(true);
      }
    }
    await padded.dispose();
  });
});

describe('bad input', () => {
  it.each([
    ['a missing folder', '/nowhere/model', 'invalid_file', '/nowhere/model'],
    ['a folder without config', tmpdir(), 'invalid_file', 'config.json'],
  ])('%s is refused', async (_, modelFolder, code, words) => {
    const fault = await faultOf(openEngine(options(modelFolder)));
    expect(fault.code).toBe(code);
    expect(fault.message).toContain(words);
  });

  it('an architecture that is not supported is named', async () => {
    const model = mkdtempSync(join(folder, 'model-'));
    writeFileSync(join(model, 'config.json'), '{"architectures":["GPT2LMHeadModel"],"model_type":"gpt2"}');
    const fault = await faultOf(openEngine(options(model)));
    expect(fault.code).toBe('unsupported_model');
    expect(fault.message).toContain('GPT2LMHeadModel');
  });

  it('a truncated weights file is refused, naming file and tensor', async () => {
    const model = mkdtempSync(join(folder, 'model-'));
    copyFileSync(join(LLAMA, 'config.json'), join(model, 'config.json'));
    const bytes = readFileSync(join(LLAMA, 'model.safetensors'));
    writeFileSync(join(model, 'model.safetensors'), bytes.subarray(0, bytes.length - 100));
    const fault = await faultOf(openEngine(options(model)));
    expect(fault.code).toBe('invalid_file');
    expect(fault.message).toMatch(/model\.safetensors: tensor "model\..*truncated/);
  });

  it.each<[string, Partial<EngineOptions>]>([
    ['threads', { threads: 0 }],
    ['threads', { threads: 1.5 }],
    ['kvCacheMiB', { kvCacheMiB: -1 }],
    ['maxStepRows', { maxStepRows: 0 }],
    ['maxTrainRows', { maxTrainRows: Number.NaN }],
    ['kernels', { kernels: 'sse2' as never }],
    ['modelFolder', { modelFolder: 7 as never }],
  ])('the option %s is refused by name', async (name, wrong) => {
    const fault = await faultOf(openEngine(options(LLAMA, wrong)));
    expect(fault.code).toBe('invalid_argument');
    expect(fault.message.replaceAll('_', '').toLowerCase()).toContain(name.toLowerCase());
  });

  it.each<[string, unknown]>([
    ['rank', { ...SPEC, rank: 0 }],
    ['rank', { ...SPEC, rank: 100_000 }],
    ['rank', { ...SPEC, rank: '4' }],
    ['alpha', { ...SPEC, alpha: -1 }],
    ['alpha', { ...SPEC, alpha: Number.NaN }],
    ['rslora', { ...SPEC, rslora: 1 }],
    ['targets', { ...SPEC, targets: [] }],
    ['targets', { ...SPEC, targets: ['q', 'q'] }],
    ['targets[1]', { ...SPEC, targets: ['q', 'query'] }],
    ['seed', { ...SPEC, seed: '18446744073709551616' }],
    ['seed', { ...SPEC, seed: '-1' }],
    ['spec', null],
  ])('an adapter with a wrong %s is refused by name', async (name, spec) => {
    const before = engine.stats().adapters;
    const fault = await faultOf(engine.createAdapter(spec as AdapterSpec));
    expect(fault.code).toBe('invalid_argument');
    expect(fault.message).toContain(name);
    expect(engine.stats().adapters).toBe(before);
  });

  it.each<[string, object]>([
    ['prompt', { prompt: new Int32Array() }],
    ['prompt', { prompt: [1, 2] }],
    ['prompt', { prompt: Int32Array.of(1, 83) }],
    ['prompt', { prompt: Int32Array.of(-1) }],
    ['seeds', { seeds: [] }],
    ['seeds[0]', { seeds: [1] }],
    ['temperature', { params: { ...sampling([]).params, temperature: -1 } }],
    ['topK', { params: { ...sampling([]).params, topK: -1 } }],
    ['topP', { params: { ...sampling([]).params, topP: 'x' } }],
    ['maxTokens', { params: { ...sampling([]).params, maxTokens: 0 } }],
    ['stopTokenIds', { params: { ...sampling([]).params, stopTokenIds: [999] } }],
    ['policy', { policy: 123456 }],
  ])('a sampling request with a wrong %s is refused by name', async (name, wrong) => {
    const fault = await faultOf(engine.sample({ ...sampling(['1']), ...wrong }));
    expect(fault.code).toBe('invalid_argument');
    expect(fault.message.replaceAll('_', '').toLowerCase()).toContain(name.toLowerCase());
  });

  it.each<[string, object]>([
    ['topP', { params: { ...sampling([]).params, topP: 0 } }],
    ['topP', { params: { ...sampling([]).params, topP: Number.NaN } }],
    ['temperature', { params: { ...sampling([]).params, temperature: Number.NaN } }],
    ['temperature', { params: { ...sampling([]).params, temperature: Number.POSITIVE_INFINITY } }],
    ['temperature', { params: { ...sampling([]).params, temperature: 1e-30 } }],
    ['maxTokens', { params: { ...sampling([]).params, maxTokens: 2 ** 31 } }],
    ['maxTokens', { params: { ...sampling([]).params, maxTokens: -(2 ** 31) } }],
    ['topK', { params: { ...sampling([]).params, topK: 1.5 } }],
    ['seeds', { seeds: new Array<string>(3) }],
    ['prompt', { prompt: new Int32Array(128).fill(3) }],
    ['request.temperature', { temperature: 0.5 }],
    ['request.params.minP', { params: { ...sampling([]).params, minP: 0.1 } }],
  ])('a sampling request with %s out of all bounds is refused by name', async (name, wrong) => {
    const fault = await faultOf(engine.sample({ ...sampling(['1']), ...wrong }));
    expect(fault.code).toBe('invalid_argument');
    expect(fault.message.toLowerCase()).toContain(name.toLowerCase());
  });

  it('fields that the engine does not know are refused by name, and change nothing', async () => {
    const adapter = await aTrainedAdapter();
    const before = await engine.stateDigest(adapter, '3');
    const datum = DATUMS[0] as Datum;
    const [branch] = datum.branches;
    const unknown: [string, () => Promise<unknown>][] = [
      ['spec.dropout', () => engine.createAdapter({ ...SPEC, dropout: 0.1 } as AdapterSpec)],
      ['params.momentum', () => engine.optimStep(adapter, { ...ADAM, momentum: 0.9 } as AdamParams)],
      ['loss.gamma', () => engine.forwardBackward(adapter, { ...CROSS_ENTROPY, gamma: 1 } as Loss, DATUMS)],
      ['datums[0].mask', () => engine.forwardBackward(adapter, CROSS_ENTROPY, [{ ...datum, mask: [1] } as Datum])],
      [
        'datums[0].branches[0].weight',
        () =>
          engine.forwardBackward(adapter, CROSS_ENTROPY, [
            { ...datum, branches: [{ ...branch!, weight: 1 } as never] },
          ]),
      ],
      ['options.kvCacheMib', () => openEngine(options(LLAMA, { kvCacheMib: 4 } as never))],
    ];
    for (const [name, call] of unknown) {
      const fault = await faultOf(call());
      expect(fault.code).toBe('invalid_argument');
      expect(fault.message).toContain(`${name}: this engine knows no such field`);
    }
    expect(await engine.stateDigest(adapter, '3')).toBe(before);
    await engine.dropAdapter(adapter);
  });

  it('training data of the wrong shape is refused by name and changes nothing', async () => {
    const adapter = await aTrainedAdapter();
    const before = await engine.stateDigest(adapter, '3');
    const withBranch = (change: Partial<Branch>): Datum => {
      const [datum] = DATUMS as [Datum];
      return { ...datum, branches: [{ ...datum.branches[0]!, ...change }] };
    };
    const branch = { tokens: Int32Array.of(3, 4), weights: Float32Array.of(1), logprobs: null, advantages: null };
    const wrong: [string, Loss, Datum[]][] = [
      ['weights', CROSS_ENTROPY, [{ prompt: Int32Array.of(1), branches: [branch] }]],
      ['weights', CROSS_ENTROPY, [{ prompt: Int32Array.of(1), branches: [{ ...branch, weights: null }] }]],
      ['branches', CROSS_ENTROPY, [{ prompt: Int32Array.of(1), branches: [] }]],
      ['prompt', CROSS_ENTROPY, [{ prompt: new Int32Array(), branches: [branch] }]],
      [
        'tokens',
        CROSS_ENTROPY,
        [DATUMS[0] as Datum, { prompt: Int32Array.of(1), branches: [{ ...branch, tokens: Int32Array.of(3, 1000) }] }],
      ],
      ['clip', { name: 'ppo', clipLow: null, clipHigh: null }, DATUMS],
      ['loss', { name: 'dpo' as never, clipLow: null, clipHigh: null }, DATUMS],
      ['loss.beta', { name: 'dro', clipLow: null, clipHigh: null }, DATUMS],
      ['loss.beta', { ...CROSS_ENTROPY, beta: 0.1 }, DATUMS],
      ['branches[0].mask', CROSS_ENTROPY, [withBranch({ mask: Float32Array.of(1, 1, 1) })]],
      ['branches[0].gradients', CROSS_ENTROPY, [withBranch({ gradients: Float32Array.of(1, 1, 1) })]],
      ['branches[0].targets', CROSS_ENTROPY, [withBranch({ targets: Int32Array.of(1, 2, 3, 4) })]],
      ['branches[0].targets', CROSS_ENTROPY, [withBranch({ targets: Float32Array.of(1, 2, 3) as never })]],
      ['branches[0].weights', CROSS_ENTROPY, [withBranch({ targets: new Int32Array(6) })]],
    ];
    for (const [name, loss, datums] of wrong) {
      const fault = await faultOf(engine.forwardBackward(adapter, loss, datums));
      expect(fault.code).toBe('invalid_argument');
      expect(fault.message).toContain(name);
    }
    expect((await faultOf(engine.forwardBackward(adapter, CROSS_ENTROPY, []))).code).toBe('invalid_argument');
    expect((await faultOf(engine.optimStep(adapter, { ...ADAM, beta1: 1 }))).message).toContain('beta1');
    expect(await engine.stateDigest(adapter, '3')).toBe(before);
    await engine.dropAdapter(adapter);
  });

  it('handles that this engine never gave are refused', async () => {
    const stranger = 999_999 as AdapterHandle;
    const calls = [
      engine.pin(stranger),
      engine.dropAdapter(stranger),
      engine.stateDigest(stranger, '0'),
      engine.optimStep(stranger, ADAM),
      engine.forward(stranger, CROSS_ENTROPY, DATUMS),
      engine.tensors(1.5 as AdapterHandle, 'm'),
    ];
    const faults = await Promise.all(calls.map(faultOf));
    expect(faults.map(({ code }) => code)).toEqual(calls.map(() => 'invalid_argument'));
    expect(() => engine.specOf(stranger)).toThrow(EngineFault);
    expect(() => engine.peftConfig(stranger as unknown as PolicyHandle)).toThrow(EngineFault);
  });
});

describe('life of an engine', () => {
  const LONG = {
    ...sampling(
      Array.from({ length: 32 }, (_, i) => String(i)),
      120,
    ),
    params: { ...sampling([]).params, maxTokens: 120, stopTokenIds: [] },
  };

  it('a cancelled request rejects, others are not touched', async () => {
    const reference = await engine.sample(sampling(['1', '2']));
    const controller = new AbortController();
    const cancelled = engine.sample(LONG, { signal: controller.signal });
    const other = engine.sample(sampling(['1', '2']));
    controller.abort();
    expect((await faultOf(cancelled)).code).toBe('cancelled');
    expect(await other).toEqual(reference);
    // The figures are those of the last finished step.
    const deadline = Date.now() + 10_000;
    while (engine.stats().activeSequences > 0 && Date.now() < deadline) await new Promise(setImmediate);
    expect(engine.stats().activeSequences).toBe(0);
  });

  it('ten engines in one process do not see each other', async () => {
    const engines = await Promise.all(
      Array.from({ length: 10 }, () => openEngine(options(LLAMA, { threads: 1, kvCacheMiB: 4 }))),
    );
    const digests = await Promise.all(
      engines.map(async (one) => {
        const adapter = await one.createAdapter(SPEC);
        await one.forwardBackward(adapter, CROSS_ENTROPY, DATUMS);
        return one.stateDigest(adapter, '1');
      }),
    );
    expect(new Set(digests).size).toBe(1);
    await Promise.all(engines.map((one) => one.dispose()));
  });

  it('dispose rejects what is pending, may be repeated, and ends every later call', async () => {
    const mortal = await openEngine(options(LLAMA));
    const adapter = await mortal.createAdapter(SPEC);
    const policy = await mortal.pin(adapter);
    const pending = [
      mortal.sample(LONG),
      mortal.forwardBackward(adapter, CROSS_ENTROPY, DATUMS),
      mortal.snapshot(adapter, '1', join(folder, 'late')),
    ].map((call) =>
      call.then(
        () => 'done',
        (error: EngineFault) => error.code,
      ),
    );
    await Promise.all([mortal.dispose(), mortal.dispose()]);
    const outcomes = await Promise.all(pending);
    expect(outcomes[0]).toBe('disposed');
    for (const outcome of outcomes) expect(['done', 'disposed']).toContain(outcome);

    const late = [
      mortal.createAdapter(SPEC),
      mortal.dropAdapter(adapter),
      mortal.pin(adapter),
      mortal.sample(LONG),
      mortal.forward(null, CROSS_ENTROPY, DATUMS),
      mortal.forwardBackward(adapter, CROSS_ENTROPY, DATUMS),
      mortal.optimStep(adapter, ADAM),
      mortal.stateDigest(adapter, '0'),
      mortal.weightsDigest(policy),
      mortal.snapshot(adapter, '0', join(folder, 'late')),
      mortal.restore(join(folder, 'late')),
      mortal.exportWeights(policy, join(folder, 'late')),
      mortal.importPeft(folder, '1'),
      mortal.tensors(adapter, 'm'),
      mortal.logits(null, Int32Array.of(1)),
    ];
    const faults = await Promise.all(late.map(faultOf));
    expect(faults.map(({ code }) => code)).toEqual(late.map(() => 'disposed'));
    for (const call of [
      () => mortal.info(),
      () => mortal.stats(),
      () => mortal.specOf(adapter),
      () => mortal.release(policy),
      () => mortal.peftConfig(policy),
    ]) {
      expect(call).toThrow(EngineFault);
    }
    await mortal.dispose();
  });

  // Run in JavaScript of their own, against the addon itself: they end their thread or process.
  const script = (body: string) => `
    const addon = require(${JSON.stringify(ADDON)});
    const options = ${JSON.stringify({ ...options(LLAMA), mutation: false })};
    const request = { ...${JSON.stringify(LONG)}, prompt: Int32Array.of(1, 5, 6) };
    (async () => {
      const engine = await addon.open(options);
      const busy = () => { for (let i = 0; i < 8; i++) engine.sample(request).result.catch(() => undefined); };
      const forever = () => engine.sample(request).result.then(forever, () => undefined);
      ${body}
    })();`;
  const runScript = (body: string) => {
    const { status, signal, stderr, stdout } = spawnSync(process.execPath, ['-e', script(body)], { encoding: 'utf8' });
    return { status, signal, stderr, stdout };
  };

  it('worker threads own engines of their own, and may be terminated in mid-step', async () => {
    const outcome = (body: string) =>
      new Promise<{ message: unknown; code: number }>((done, fail) => {
        const worker = new Worker(script(body), { eval: true });
        let message: unknown = null;
        worker.on('message', (value) => {
          message = value;
          if (value === 'busy') void worker.terminate();
        });
        worker.on('error', fail);
        worker.on('exit', (code) => done({ message, code }));
      });
    const post = "require('node:worker_threads').parentPort.postMessage";
    const [first, second, third] = await Promise.all([
      outcome(`${post}((await engine.logits(null, Int32Array.of(1, 2)))[0]); await engine.dispose();`),
      outcome(`${post}((await engine.logits(null, Int32Array.of(1, 2)))[0]);`),
      outcome(`busy(); void forever(); ${post}('busy');`),
    ]);
    const logits = await engine.logits(null, Int32Array.of(1, 2));
    expect(first).toEqual({ message: logits[0], code: 0 });
    expect(second).toEqual({ message: logits[0], code: 0 });
    expect(third).toEqual({ message: 'busy', code: 1 });
  });

  it('the process may exit in mid-step', () => {
    expect(runScript('busy(); setImmediate(() => process.exit(7));')).toMatchObject({
      status: 7,
      signal: null,
      stderr: '',
    });
  });

  it('the process may exit while a base is loading', () => {
    expect(runScript('addon.open(options); process.exit(7);')).toMatchObject({ status: 7, signal: null, stderr: '' });
  });

  it('pending calls keep the process alive, an idle engine does not', () => {
    const body = "engine.sample(request).result.then((r) => console.log(r.sequences.length, 'sequences'));";
    expect(runScript(body)).toMatchObject({ status: 0, signal: null, stderr: '', stdout: '32 sequences\n' });
  });

  it('an engine that nobody refers to any more is collected', () => {
    const body = `
      const { setTimeout: pause } = require('node:timers/promises');
      require('node:v8').setFlagsFromString('--expose-gc');
      const gc = require('node:vm').runInNewContext('gc');
      let collected = 0;
      const registry = new FinalizationRegistry(() => collected++);
      for (let i = 0; i < 3; i++) registry.register(await addon.open(options));
      for (let i = 0; i < 200 && collected < 3; i++) { gc(); await pause(5); }
      console.log(collected);`;
    expect(runScript(body)).toMatchObject({ status: 0, signal: null, stderr: '', stdout: '3\n' });
  });
});
