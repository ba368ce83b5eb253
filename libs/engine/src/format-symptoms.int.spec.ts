/**
 * Symptoms that were reported of comparable systems' file formats, as tests that fail when ours has them. A file is read
 * whole and as it means, or refused by name; nothing of it is dropped, guessed or half believed.
 */
import { cpSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { EngineFault } from './engine.errors';
import type { Engine, Loss, SampleRequest } from './engine.types';
import { DEFAULT_ENGINE_OPTIONS, openEngine } from './open-engine';
import { readSafetensors, withHeader, writeSafetensors, type StoredTensor } from './testing/safetensors';

const FIXTURES = join(resolve(__dirname, '..', '..', '..'), 'native', 'test', 'fixtures');
const LLAMA = join(FIXTURES, 'llama-gqa-f32');
const TIED = join(FIXTURES, 'llama-tied-bf16');
const IMPORTANCE: Loss = { name: 'importance_sampling', clipLow: null, clipHigh: null };
const OPTIONS = { ...DEFAULT_ENGINE_OPTIONS, threads: 2, kvCacheMiB: 16 };

let engine: Engine;
let folder: string;
beforeAll(async () => {
  folder = mkdtempSync(join(tmpdir(), 'hotbed-formats-'));
  engine = await openEngine({ ...OPTIONS, modelFolder: LLAMA });
});
afterAll(async () => {
  await engine.dispose();
  rmSync(folder, { recursive: true });
});

async function faultOf(call: Promise<unknown>): Promise<EngineFault> {
  const outcome: unknown = await call.then(
    () => 'resolved',
    (error: unknown) => error,
  );
  expect(outcome).toBeInstanceOf(EngineFault);
  return outcome as EngineFault;
}

type Tensors = Map<string, StoredTensor>;
type Config = Record<string, unknown>;

/** A copy of a fixture folder with config and tensors changed. */
function aFolder(
  from: string,
  file: 'model.safetensors' | 'adapter_model.safetensors',
  change: (tensors: Tensors, config: Config) => Tensors | void,
): string {
  const copy = mkdtempSync(join(folder, 'copy-'));
  const configFile = file === 'model.safetensors' ? 'config.json' : 'adapter_config.json';
  const config = JSON.parse(readFileSync(join(from, configFile), 'utf8')) as Config;
  const tensors = readSafetensors(join(from, file));
  const changed = change(tensors, config) ?? tensors;
  writeSafetensors(join(copy, file), changed);
  writeFileSync(join(copy, configFile), JSON.stringify(config));
  return copy;
}
const anAdapter = (change: (tensors: Tensors, config: Config) => Tensors | void): string =>
  aFolder(join(LLAMA, 'adapter'), 'adapter_model.safetensors', change);
const aModel = (from: string, change: (tensors: Tensors, config: Config) => Tensors | void): string =>
  aFolder(from, 'model.safetensors', change);

const renamed = (tensors: Tensors, rename: (name: string) => string): Tensors =>
  new Map([...tensors].map(([name, tensor]) => [rename(name), tensor]));

/** Digest of an imported adapter's weights. */
async function importedDigest(path: string): Promise<string> {
  const { adapter } = await engine.importPeft(path, '0');
  const policy = await engine.pin(adapter);
  const digest = await engine.weightsDigest(policy);
  engine.release(policy);
  await engine.dropAdapter(adapter);
  return digest;
}

async function refusedImport(path: string): Promise<string> {
  const before = engine.stats().adapters;
  const fault = await faultOf(engine.importPeft(path, '0'));
  expect(fault.code).toBe('invalid_file');
  expect(fault.message).toContain(path);
  expect(engine.stats().adapters).toBe(before);
  return fault.message;
}

describe('vllm#34186, mflux#396: a wrong key prefix silently gives the base model', () => {
  it.each([
    ['of another tool', (name: string) => name.replace('base_model.model.model.', 'transformer.')],
    ['doubled', (name: string) => `base_model.model.${name}`],
    ['with a part too much', (name: string) => name.replace('.model.layers.', '.model.decoder.layers.')],
    ['in front of one key alone', (name: string) => name.replace(/^(.*layers\.0\.mlp\.down)/, 'x.$1')],
  ])('%s: refused, naming the first key that fits nothing', async (_, rename) => {
    const path = anAdapter((tensors) => renamed(tensors, rename));
    const first = [...readSafetensors(join(path, 'adapter_model.safetensors')).keys()]
      .filter((name) => !readSafetensors(join(LLAMA, 'adapter', 'adapter_model.safetensors')).has(name))
      .sort()[0];
    expect(await refusedImport(path)).toContain(`key "${first}" matches no module of this base`);
  });
});

describe('vllm#9280: modules_to_save is dropped', () => {
  it('a list of modules is refused by name', async () => {
    const path = anAdapter((_, config) => void (config['modules_to_save'] = ['lm_head', 'embed_tokens']));
    expect(await refusedImport(path)).toContain('"modules_to_save" is not supported');
  });

  it('so is the tensor of such a module, also where the config does not mention it', async () => {
    const name = 'base_model.model.lm_head.modules_to_save.weight';
    const path = anAdapter((tensors) => void tensors.set(name, { dtype: 'F32', shape: [1], bytes: Buffer.alloc(4) }));
    expect(await refusedImport(path)).toContain(`key "${name}" matches no module`);
  });

  it.each(['use_dora', 'rank_pattern', 'alpha_pattern', 'layers_to_transform', 'trainable_token_indices'])(
    'nor is %s dropped',
    async (field) => {
      const path = anAdapter((_, config) => void (config[field] = field === 'use_dora' ? true : { q_proj: 1 }));
      expect(await refusedImport(path)).toContain(`"${field}"`);
    },
  );
});

describe('peft#1579, #1443: layouts of keys, empty tensors', () => {
  it.each([
    ['with the adapter’s name', (name: string) => name.replace(/\.weight$/, '.default.weight')],
    ['without the wrapper’s prefix', (name: string) => name.replace('base_model.model.', '')],
  ])('keys %s are the same adapter', async (_, rename) => {
    const path = anAdapter((tensors) => renamed(tensors, rename));
    expect(await importedDigest(path)).toBe(await importedDigest(join(LLAMA, 'adapter')));
  });

  it('an empty tensor is refused with its shape, a missing one by its name', async () => {
    const name = 'base_model.model.model.layers.1.mlp.up_proj.lora_B.weight';
    const empty = anAdapter((tensors) => void tensors.set(name, { dtype: 'F32', shape: [0], bytes: Buffer.alloc(0) }));
    expect(await refusedImport(empty)).toContain(`tensor "${name}": shape [0]`);
    const missing = anAdapter((tensors) => void tensors.delete(name));
    expect(await refusedImport(missing)).toContain(`tensor "${name}" is missing`);
    const none = anAdapter(() => new Map());
    expect(await refusedImport(none)).toContain('holds no tensors');
  });

  it('a tensor that holds NaN or an infinity is refused by name', async () => {
    const name = 'base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight';
    for (const value of [Number.NaN, Number.POSITIVE_INFINITY]) {
      const path = anAdapter((tensors) => {
        const tensor = tensors.get(name)!;
        const bytes = Buffer.from(tensor.bytes);
        bytes.writeFloatLE(value, 8);
        tensors.set(name, { ...tensor, bytes });
      });
      expect(await refusedImport(path)).toContain(`tensor "${name}": element 2 is not a finite number`);
    }
  });
});

describe('mlx#3363, #3409, fastllm#712, imp#1603: damaged safetensors crash the reader', () => {
  const entry = (dtype: string, shape: string, offsets: string) =>
    `{"a":{"dtype":"${dtype}","shape":${shape},"data_offsets":${offsets}}}`;
  const four = Buffer.alloc(4);

  it.each<[string, Buffer]>([
    ['offsets past the end', withHeader(entry('F32', '[2]', '[0,8]'), four)],
    ['offsets that wrap', withHeader(entry('F32', '[1]', '[18446744073709551612,18446744073709551616]'), four)],
    ['offsets in the wrong order', withHeader(entry('F32', '[1]', '[4,0]'), four)],
    ['a shape that disagrees', withHeader(entry('F32', '[3]', '[0,4]'), four)],
    ['a shape that wraps', withHeader(entry('F32', '[4611686018427387905]', '[0,4]'), four)],
    ['a negative size', withHeader(entry('F32', '[-1]', '[0,4]'), four)],
    ['an unknown dtype', withHeader(entry('F99', '[1]', '[0,4]'), four)],
    ['a header length that wraps', withHeader(entry('F32', '[1]', '[0,4]'), four, 2n ** 64n - 8n)],
    ['a header length past the end', withHeader(entry('F32', '[1]', '[0,4]'), four, 2n ** 20n)],
    ['a header beyond the format’s limit', withHeader(entry('F32', '[1]', '[0,4]'), four, 100_000_001n)],
    ['a header that is no JSON', withHeader('{"a":', four)],
    ['a key twice', withHeader(`{"a":${entry('F32', '[1]', '[0,4]').slice(5, -1)},"a":1}`, four)],
    ['bytes after the last tensor', withHeader(entry('F32', '[1]', '[0,4]'), Buffer.alloc(12))],
    ['no header', Buffer.alloc(3)],
    ['nothing', Buffer.alloc(0)],
  ])('%s: a clear error from the model’s door and the adapter’s', async (_, bytes) => {
    const model = mkdtempSync(join(folder, 'damaged-'));
    cpSync(join(LLAMA, 'config.json'), join(model, 'config.json'));
    writeFileSync(join(model, 'model.safetensors'), bytes);
    const fault = await faultOf(openEngine({ ...OPTIONS, modelFolder: model }));
    expect([fault.code, fault.message.startsWith(join(model, 'model.safetensors'))]).toEqual(['invalid_file', true]);
    expect(fault.message.length).toBeGreaterThan(join(model, 'model.safetensors: ').length + 10);

    const adapter = mkdtempSync(join(folder, 'damaged-'));
    cpSync(join(LLAMA, 'adapter', 'adapter_config.json'), join(adapter, 'adapter_config.json'));
    writeFileSync(join(adapter, 'adapter_model.safetensors'), bytes);
    expect(await refusedImport(adapter)).toContain('adapter_model.safetensors: ');
    await expect(engine.restore(join(adapter, 'adapter_model.safetensors'))).rejects.toThrow(EngineFault);
  });
});

describe('transformers#38870, vllm#6758: a tied head that is absent, or present although tied', () => {
  const HEAD = 'lm_head.weight';
  const EMBEDDING = 'model.embed_tokens.weight';

  async function logitsOf(modelFolder: string): Promise<{ logits: Float32Array; digest: string }> {
    const opened = await openEngine({ ...OPTIONS, modelFolder });
    const logits = await opened.logits(null, Int32Array.of(1, 5, 9, 4));
    const { baseDigest } = opened.info();
    await opened.dispose();
    return { logits, digest: baseDigest };
  }

  it('absent, present as a copy, and undeclared: one model', async () => {
    const absent = await logitsOf(TIED);
    const present = await logitsOf(aModel(TIED, (tensors) => void tensors.set(HEAD, tensors.get(EMBEDDING)!)));
    const silent = await logitsOf(aModel(TIED, (_, config) => void delete config['tie_word_embeddings']));
    expect(present).toEqual(absent);
    expect(silent).toEqual(absent);
  });

  it('another head is used, whatever the config calls it', async () => {
    const own = (tensors: Tensors) => {
      const { dtype, shape, bytes } = tensors.get(EMBEDDING)!;
      tensors.set(HEAD, {
        dtype,
        shape,
        bytes: Buffer.from(bytes).map((byte, i) => (i % 2 === 0 ? byte ^ 1 : byte)) as Buffer,
      });
    };
    const declaredTied = await logitsOf(aModel(TIED, own));
    const declaredSeparate = await logitsOf(
      aModel(TIED, (tensors, config) => {
        own(tensors);
        config['tie_word_embeddings'] = false;
      }),
    );
    expect(declaredTied).toEqual(declaredSeparate);
    expect(declaredTied.logits).not.toEqual((await logitsOf(TIED)).logits);
  });

  it('a separate head that is missing is refused by name', async () => {
    const path = aModel(TIED, (_, config) => void (config['tie_word_embeddings'] = false));
    const fault = await faultOf(openEngine({ ...OPTIONS, modelFolder: path }));
    expect(fault.message).toContain(`tensor "${HEAD}" is missing`);
  });
});

const aRequest = (overrides: Partial<SampleRequest['params']> = {}): SampleRequest => ({
  policy: null,
  prompt: Int32Array.of(1, 5, 6),
  seeds: ['3'],
  params: { temperature: 1, topK: 0, topP: 1, maxTokens: 24, stopTokenIds: [], ...overrides },
  promptLogprobs: false,
});

describe('TensorRT-Model-Connect#640: the eos list of generation_config.json is ignored', () => {
  it('every id of the list ends a sequence', async () => {
    const free = (await engine.sample(aRequest())).sequences[0]!.tokens;
    const distinct = [...new Set(free)].filter((id) => id !== free[0]);
    const path = mkdtempSync(join(folder, 'eos-'));
    for (const file of ['config.json', 'model.safetensors']) cpSync(join(LLAMA, file), join(path, file));
    const list = [distinct[4]!, distinct[1]!, distinct[2]!];
    writeFileSync(join(path, 'generation_config.json'), JSON.stringify({ eos_token_id: list }));
    const opened = await openEngine({ ...OPTIONS, modelFolder: path });
    const { eosTokenIds } = opened.info();
    expect(eosTokenIds).toEqual([...list].sort((a, b) => a - b));
    const { sequences } = await opened.sample(aRequest({ stopTokenIds: eosTokenIds }));
    const end = free.findIndex((id) => list.includes(id));
    expect(sequences[0]).toMatchObject({ tokens: free.slice(0, end + 1), stopReason: 'stop' });
    for (const id of list) {
      const alone = await opened.sample(aRequest({ stopTokenIds: [id] }));
      expect(alone.sequences[0]).toMatchObject({ tokens: free.slice(0, free.indexOf(id) + 1), stopReason: 'stop' });
    }
    await opened.dispose();
  });
});

describe('Soup#785: the trained EOS is lost', () => {
  it('the end token is part of what was sampled, and of what is trained, with its log-prob', async () => {
    const free = (await engine.sample(aRequest())).sequences[0]!.tokens;
    const eos = free[7]!;
    const [sampled] = (await engine.sample(aRequest({ stopTokenIds: [eos] }))).sequences;
    const { tokens, policyLogprobs } = sampled!;
    expect(tokens.at(-1)).toBe(eos);
    const adapter = await engine.createAdapter({ rank: 2, alpha: 4, rslora: false, targets: ['q', 'v'], seed: '1' });
    // Only the end token carries an advantage: a lost one would leave no gradient.
    const advantages = new Float32Array(tokens.length);
    advantages[tokens.length - 1] = 1;
    const branch = { tokens, weights: null, logprobs: policyLogprobs, advantages };
    const prompt = aRequest().prompt;
    const result = await engine.forwardBackward(adapter, IMPORTANCE, [{ prompt, branches: [branch] }]);
    expect(result.logprobs[0]![0]).toEqual(policyLogprobs);
    expect(
      (
        await engine.optimStep(adapter, {
          learningRate: 0.1,
          beta1: 0.9,
          beta2: 0.95,
          eps: 1e-8,
          weightDecay: 0,
          gradClipNorm: 0,
        })
      ).gradNorm,
    ).toBeGreaterThan(0);
    await engine.dropAdapter(adapter);
  });
});
