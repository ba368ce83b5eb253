/**
 * Own work by command: own records, own verifier, own base folder; at the end an adapter in PEFT's layout whose bytes
 * are the version's.
 */
import { execFile } from 'node:child_process';
import { createHash } from 'node:crypto';
import { cpSync, mkdirSync, mkdtempSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import type { AdapterVersionView } from '#hotbed/contracts';
import { ROOT } from '../support/hotbed-command';
import { RunningPlatform } from '../support/running-platform';
import { RECORDS, WORDS, untilTrained } from '../support/small-training';

jest.setTimeout(240_000);

const folder = mkdtempSync(join(tmpdir(), 'hotbed-own-work-'));
const verifiers = join(folder, 'verifiers');
const base = join(folder, 'greenhouse');
const records = join(folder, 'records.jsonl');
const out = join(folder, 'peft');
const python = process.env['HOTBED_TEST_PYTHON'] ?? '';

/** Rewards the share of upper-case letters: no built-in verifier does. */
const VERIFIER = `
export default ({ completion, config }) => {
  const letters = [...completion].filter((letter) => letter >= config.from && letter <= config.to);
  return { reward: completion === '' ? 0 : letters.length / completion.length, valid: completion !== '' };
};
`;

let platform: RunningPlatform;

beforeAll(async () => {
  mkdirSync(verifiers);
  writeFileSync(join(verifiers, 'shouting.mjs'), VERIFIER);
  writeFileSync(records, RECORDS.map(({ key, content }) => `${JSON.stringify({ key, ...content })}\n`).join(''));
  cpSync(join(ROOT, 'models', 'seedling'), base, { recursive: true });
  platform = await RunningPlatform.start({ HOTBED_VERIFIER_DIR: verifiers, HOTBED_BASE_MODEL: base });
});
afterAll(async () => {
  await platform?.remove();
  rmSync(folder, { recursive: true, force: true });
});

async function latest(): Promise<AdapterVersionView> {
  const { version } = await platform
    .door()
    .made<{ version: AdapterVersionView }>('GET', '/v1/adapters/shouter/resolve?ref=latest');
  return version;
}

describe('own work by command', () => {
  it('takes own records from a file, once however often it is sent', async () => {
    expect(await platform.hotbedJson(['streams', 'create', 'words', '--from', records])).toMatchObject({
      name: 'words',
      records: RECORDS.length,
    });
    expect(await platform.hotbedJson(['streams', 'append', 'words', records])).toEqual({
      received: 0,
      duplicates: RECORDS.length,
    });
  });

  it('trains on the own base with the own verifier', async () => {
    const created = await platform.hotbedJson([
      ...['experiments', 'create', 'shouter', '--stream', 'words'],
      ...['--verifier', 'shouting', '--verifier-config', '{"from":"A","to":"Z"}'],
      ...[
        '--rank',
        '4',
        '--alpha',
        '8',
        '--steps',
        '6',
        '--learning-rate',
        '0.004',
        '--max-tokens',
        '8',
        '--seed',
        '5',
      ],
    ]);
    expect(created).toMatchObject({ name: 'shouter', adapterName: 'shouter', state: 'idle' });
    await platform.hotbedJson(['experiments', 'trigger', 'shouter']);
    const view = await untilTrained(platform.door(), 'shouter');
    expect(view.reward).toEqual({ verifier: 'shouting', config: { from: 'A', to: 'Z' } });
    expect(view.steps.map((step) => step.step)).toEqual([0, 1, 2, 3, 4, 5]);
    // Shares of letters, not zeros and ones: the verdicts are the own verifier's.
    expect(view.examples.some(({ reward }) => reward > 0 && reward < 1) || view.steps[0]!.rewardMean > 0).toBe(true);
    for (const { completion, reward } of view.examples) {
      const shouted = [...completion].filter((letter) => letter >= 'A' && letter <= 'Z').length;
      expect(reward).toBeCloseTo(completion === '' ? 0 : shouted / completion.length, 12);
    }
    const { code, stdout } = await platform.hotbed(['experiments', 'show', 'shouter']);
    expect(code).toBe(0);
    expect(stdout).toContain('shouter: idle, run 1, step 6 of 6');
  });

  it('answers from the newest version', async () => {
    const args = ['sample', 'shouter@latest', 'hat>', '--temperature', '0', '--max-tokens', '8'];
    const [first, second] = [await platform.hotbed(args), await platform.hotbed(args)];
    expect(first).toMatchObject({ code: 0, stderr: '' });
    expect(first.stdout).toMatch(/^[A-Za-z>]*\n$/);
    expect(second.stdout).toBe(first.stdout);
    const { adapter } = await platform.hotbedJson(args);
    expect(adapter).toMatchObject({ version: 1, weightsDigest: (await latest()).weightsDigest });
  });

  it('ends a sample at a stop string: the tokens up to it, the text before it', async () => {
    type Answer = { prompts: { completions: { text: string; tokens: number[]; stopReason: string }[] }[] };
    const args = ['sample', 'base', 'hat>', '--temperature', '1.5', '--seed', '3', '--max-tokens', '12'];
    const completionOf = (answer: unknown) => (answer as Answer).prompts[0]!.completions[0]!;
    const whole = completionOf(await platform.hotbedJson(args));
    expect(whole.text.length).toBeGreaterThan(2);
    const stop = whole.text.slice(1, 3);
    const cut = completionOf(await platform.hotbedJson([...args, '--stop', '~~', '--stop', stop]));
    expect(cut.text).toBe(whole.text.slice(0, whole.text.indexOf(stop)));
    expect(cut.stopReason).toBe('stop');
    expect(cut.tokens).toEqual(whole.tokens.slice(0, cut.tokens.length));
    expect(cut.tokens).toHaveLength(whole.text.indexOf(stop) + stop.length);
  });

  it('knows which records influenced the version', async () => {
    const lineage = await platform.hotbedJson(['adapters', 'lineage', 'shouter', '1']);
    expect(lineage.distinctRecords).toBeGreaterThan(0);
    expect(lineage.distinctRecords).toBeLessThanOrEqual(WORDS.length);
    expect(lineage.influences.length).toBeGreaterThan(0);
  });

  it("hands the version out in PEFT's layout, byte for byte", async () => {
    await platform.hotbedJson(['adapters', 'download', 'shouter@latest', '--out', out]);
    const version = await latest();
    const weights = readFileSync(join(out, 'adapter_model.safetensors'));
    expect(createHash('sha256').update(weights).digest('hex')).toBe(version.weightsDigest);
    expect(statSync(join(out, 'adapter_config.json')).size).toBe(version.configFile.size);

    const config = JSON.parse(readFileSync(join(out, 'adapter_config.json'), 'utf8')) as Record<string, unknown>;
    expect(config).toMatchObject({ peft_type: 'LORA', task_type: 'CAUSAL_LM', r: 4, lora_alpha: 8, bias: 'none' });
    const modules = ['q_proj', 'k_proj', 'v_proj', 'o_proj', 'gate_proj', 'up_proj', 'down_proj'];
    expect([...(config['target_modules'] as string[])].sort()).toEqual([...modules].sort());
    expect(config['lora_dropout'] ?? 0).toBe(0);
    expect(config['use_rslora'] ?? false).toBe(false);

    const tensors = tensorsOf(weights);
    const layers = (JSON.parse(readFileSync(join(base, 'config.json'), 'utf8')) as { num_hidden_layers: number })
      .num_hidden_layers;
    const names = Array.from({ length: layers }, (_, layer) =>
      modules.flatMap((module) => {
        const part = ['gate_proj', 'up_proj', 'down_proj'].includes(module) ? 'mlp' : 'self_attn';
        return ['A', 'B'].map((ab) => `base_model.model.model.layers.${layer}.${part}.${module}.lora_${ab}.weight`);
      }),
    ).flat();
    expect(Object.keys(tensors).sort()).toEqual(names.sort());
    for (const [name, { shape }] of Object.entries(tensors)) {
      expect(name.includes('lora_A') ? shape[0] : shape[1]).toBe(4);
    }
  });

  // Needs torch, transformers and peft: HOTBED_TEST_PYTHON names a Python that has them.
  (python === '' ? it.skip : it)('loads in transformers and PEFT (skipped without HOTBED_TEST_PYTHON)', async () => {
    const script = `
import json, sys, torch
from transformers import AutoModelForCausalLM
from peft import PeftModel
base = AutoModelForCausalLM.from_pretrained(sys.argv[1], dtype=torch.float32)
model = PeftModel.from_pretrained(base, sys.argv[2])
prompt = torch.tensor([[1, 11, 4, 23, 3]])  # <bos> h a t >
tokens = []
with torch.no_grad():
    for _ in range(8):
        token = int(model(torch.cat([prompt, torch.tensor([tokens], dtype=torch.long)], 1)).logits[0, -1].argmax())
        tokens.append(token)
        if token == 2: break
print(json.dumps(tokens))
`;
    const { stdout } = await promisify(execFile)(python, ['-W', 'error::UserWarning', '-c', script, base, out], {
      env: { ...process.env, HF_HUB_OFFLINE: '1' },
    });
    const args = ['sample', 'shouter@latest', 'hat>', '--temperature', '0', '--max-tokens', '8'];
    const { prompts } = await platform.hotbedJson(args);
    expect(JSON.parse(stdout.trim().split('\n').at(-1)!)).toEqual(prompts[0].completions[0].tokens);
  });
});

/** The header of a safetensors file: u64 length, JSON; offsets must cover the rest without a gap. */
function tensorsOf(file: Buffer): Record<string, { dtype: string; shape: number[]; data_offsets: [number, number] }> {
  const length = Number(file.readBigUInt64LE(0));
  const { __metadata__: _, ...tensors } = JSON.parse(file.subarray(8, 8 + length).toString('utf8')) as Record<
    string,
    { dtype: string; shape: number[]; data_offsets: [number, number] }
  >;
  let at = 0;
  for (const { data_offsets } of Object.values(tensors).sort((a, b) => a.data_offsets[0] - b.data_offsets[0])) {
    expect(data_offsets[0]).toBe(at);
    at = data_offsets[1];
  }
  expect(at).toBe(file.length - 8 - length);
  return tensors;
}
