/**
 * Symptoms of losses and heads that were reported of comparable systems, as tests that fail when ours has them. The head
 * here never makes the matrix [tokens, vocabulary]: the plain loss, made of whole rows of logits, is the judge.
 */
import { copyFileSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import fc from 'fast-check';
import { Random } from '../bench/random';
import { drawTraining } from '../bench/random-training';
import type { AdapterHandle, Datum, Engine, Loss, PolicyHandle } from './engine.types';
import { LOSS_NAMES } from './engine.types';
import { DEFAULT_ENGINE_OPTIONS, openEngine } from './open-engine';

const FIXTURES = join(resolve(__dirname, '..', '..', '..'), 'native', 'test', 'fixtures', 'losses');
const CROSS_ENTROPY: Loss = { name: 'cross_entropy', clipLow: null, clipHigh: null };

const openWith = (name: string, maxTrainRows = DEFAULT_ENGINE_OPTIONS.maxTrainRows): Promise<Engine> =>
  openEngine({
    ...DEFAULT_ENGINE_OPTIONS,
    modelFolder: join(FIXTURES, name),
    threads: 2,
    kvCacheMiB: 8,
    activationBudgetMiB: 32,
    maxTrainRows,
  });

describe.each(['head-tied', 'head-separate-rslora'])(
  "TRL#5676, Liger#968, #1298, axolotl#1601: a fused loss skips the head's adapter, ignores weights of tokens, drifts by chunk (%s)",
  (name) => {
    const adapterFolder = join(FIXTURES, name, 'adapter');
    const random = new Random(1);
    const ids = (count: number) => Int32Array.from(random.list(count, () => random.integer(3, 60)));
    const datum = (prompt: number, length: number): Datum => ({
      prompt: ids(prompt),
      branches: [
        {
          tokens: ids(length),
          // Every token its own weight, some 0, some negative.
          weights: Float32Array.from(random.list(length, () => random.pick([0, 1, 0.25, -0.5, 3]))),
          logprobs: null,
          advantages: null,
        },
      ],
    });
    const datums = [datum(3, 9), datum(1, 20), datum(6, 2)];
    let engine: Engine;
    let folder: string;

    beforeAll(async () => {
      engine = await openWith(name);
      folder = mkdtempSync(join(tmpdir(), 'hotbed-loss-'));
    });
    afterAll(async () => {
      await engine.dispose();
      rmSync(folder, { recursive: true, force: true });
    });

    /** -sum of w * log-softmax, in fp64, from one row of logits per position. */
    async function plainLoss(policy: PolicyHandle): Promise<{ loss: number; logprobs: number[][] }> {
      let loss = 0;
      const logprobs: number[][] = [];
      for (const { prompt, branches } of datums) {
        const [branch] = branches;
        const row: number[] = [];
        for (const [i, target] of branch!.tokens.entries()) {
          const logits = await engine.logits(policy, Int32Array.of(...prompt, ...branch!.tokens.slice(0, i)));
          const most = Math.max(...logits);
          const lse = most + Math.log(logits.reduce((sum, logit) => sum + Math.exp(logit - most), 0));
          row.push(logits[target]! - lse);
          loss -= branch!.weights![i]! * row[i]!;
        }
        logprobs.push(row);
      }
      return { loss, logprobs };
    }

    it('the loss and every log-prob are those of plain logits, with the adapter on the head', async () => {
      const { adapter } = await engine.importPeft(adapterFolder, '0');
      const plain = await plainLoss(await engine.pin(adapter));
      const fused = await engine.forward(adapter, CROSS_ENTROPY, datums);
      expect(Math.abs(fused.lossSum - plain.loss)).toBeLessThan(1e-5 * Math.abs(plain.loss));
      for (const [i, row] of plain.logprobs.entries()) {
        for (const [t, logprob] of row.entries()) {
          expect(Math.abs(fused.logprobs[i]![0]![t]! - logprob)).toBeLessThan(1e-5);
        }
      }
      // And the adapter is in it: without its pair on the head the loss is another one.
      const without = await engine.importPeft(
        moved('without', /lm_head\.lora_B/, () => 0),
        '0',
      );
      const other = await engine.forward(without.adapter, CROSS_ENTROPY, datums);
      expect(Math.abs(other.lossSum - fused.lossSum)).toBeGreaterThan(1e-2 * Math.abs(fused.lossSum));
    });

    /** The adapter's files with some numbers changed; `index` counts within a tensor. */
    function moved(label: string, tensors: RegExp, change: (value: number, name: string, index: number) => number) {
      const target = join(folder, label);
      mkdirSync(target, { recursive: true });
      copyFileSync(join(adapterFolder, 'adapter_config.json'), join(target, 'adapter_config.json'));
      const file = readFileSync(join(adapterFolder, 'adapter_model.safetensors'));
      const start = 8 + Number(file.readBigUInt64LE(0));
      const header = JSON.parse(file.subarray(8, start).toString()) as Record<string, { data_offsets: number[] }>;
      for (const [tensor, { data_offsets: offsets }] of Object.entries(header)) {
        if (!tensors.test(tensor)) continue;
        const [begin, end] = offsets as [number, number];
        for (let at = start + begin, i = 0; at < start + end; at += 4, i++) {
          file.writeFloatLE(change(file.readFloatLE(at), tensor, i), at);
        }
      }
      writeFileSync(join(target, 'adapter_model.safetensors'), file);
      return target;
    }

    it('every gradient is the slope of the plain loss', async () => {
      const { adapter } = await engine.importPeft(adapterFolder, '0');
      await engine.forwardBackward(adapter, CROSS_ENTROPY, datums);
      const gradients = await engine.tensors(adapter, 'gradient');
      expect([...gradients.keys()].filter((tensor) => tensor.includes('lm_head'))).toHaveLength(2);
      for (const [tensor, gradient] of gradients) {
        const length = Math.hypot(...gradient);
        const lossAt = async (step: number): Promise<number> => {
          const only = new RegExp(`^${tensor.replaceAll('.', '\\.')}$`);
          const files = moved('probe', only, (value, _, i) => value + (step * gradient[i]!) / length);
          const probe = await engine.importPeft(files, '0');
          const { loss } = await plainLoss(await engine.pin(probe.adapter));
          await engine.dropAdapter(probe.adapter);
          return loss;
        };
        const slope = ((await lossAt(2e-3)) - (await lossAt(-2e-3))) / 4e-3;
        // Rounding of fp32 logits over the step, and the cubic term, stay below 1 %.
        expect(Math.abs(slope - length)).toBeLessThan(0.01 * length + 5e-3);
      }
    });

    it('chunks of any size give the same bits', async () => {
      const digests = new Set<string>();
      for (const maxTrainRows of [1, 7, 10_000]) {
        const other = await openWith(name, maxTrainRows);
        const { adapter } = await other.importPeft(adapterFolder, '0');
        const { lossSum } = await other.forwardBackward(adapter, CROSS_ENTROPY, datums);
        digests.add(`${lossSum} ${await other.stateDigest(adapter, '1')}`);
        await other.dispose();
      }
      expect(digests.size).toBe(1);
    });
  },
);

describe('transformers#34191, ms-swift#10084: accumulation changes the loss', () => {
  let engine: Engine;
  beforeAll(async () => {
    engine = await openWith('head-tied');
  });
  afterAll(() => engine.dispose());

  async function anAdapter(): Promise<AdapterHandle> {
    const { adapter } = await engine.importPeft(join(FIXTURES, 'head-tied', 'adapter'), '0');
    return adapter;
  }

  it.each(LOSS_NAMES)('%s is a sum: cut at any datums it has the same log-probs, loss and gradient', async (name) => {
    const training = fc.integer({ min: 0, max: 2 ** 31 }).map((seed) => {
      const random = new Random(seed);
      const { loss, datums } = drawTraining(random, 61, name);
      return { loss, datums: [...datums, ...drawTraining(random, 61, name).datums] };
    });
    await fc.assert(
      fc.asyncProperty(training, fc.array(fc.boolean(), { minLength: 8, maxLength: 8 }), async (drawn, cuts) => {
        const { loss, datums } = drawn;
        const whole = await anAdapter();
        const all = await engine.forwardBackward(whole, loss, datums);
        const parts = await anAdapter();
        const results = [];
        for (let at = 0; at < datums.length;) {
          let end = at + 1;
          while (end < datums.length && !cuts[end % cuts.length]) end++;
          results.push(await engine.forwardBackward(parts, loss, datums.slice(at, end)));
          at = end;
        }
        expect(results.flatMap((result) => result.logprobs)).toEqual(all.logprobs);
        const sum = results.reduce((total, result) => total + result.lossSum, 0);
        expect(Math.abs(sum - all.lossSum)).toBeLessThanOrEqual(1e-11 * (1 + Math.abs(all.lossSum)));
        expect(results.reduce((total, result) => total + result.tokens, 0)).toBe(all.tokens);
        expect(await engine.stateDigest(parts, '1')).toBe(await engine.stateDigest(whole, '1'));
        await engine.dropAdapter(whole);
        await engine.dropAdapter(parts);
      }),
      { numRuns: 12, seed: 20_260 },
    );
  });

  it('twice the data is twice the loss, whatever the lengths', async () => {
    const adapter = await anAdapter();
    for (const name of LOSS_NAMES) {
      const { loss, datums } = drawTraining(new Random(4), 61, name);
      const once = await engine.forward(adapter, loss, datums);
      const twice = await engine.forward(adapter, loss, [...datums, ...datums]);
      expect(Math.abs(twice.lossSum - 2 * once.lossSum)).toBeLessThanOrEqual(1e-11 * (1 + Math.abs(once.lossSum)));
    }
  });
});
