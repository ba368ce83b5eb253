import { createHash } from 'node:crypto';
import { closeSync, fsyncSync, mkdtempSync, openSync, readFileSync, rmSync, writeSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { adapterBytes } from './ceilings';
import type { AdapterRow } from './engine-report';
import { interleave, median, rounded } from './interleave';
import type { Bench } from './measure';
import { Random } from './random';
import { ADAM, CROSS_ENTROPY, adapterSpec, randomTokens, sampleRequest, sequence } from './workload';

/** What an adapter costs: to make, to answer first, to publish as a sampler version, to bring back, to keep. */
export async function measureAdapter(bench: Bench, deadline: number): Promise<AdapterRow | null> {
  const { engine, model } = bench;
  const rank = 8;
  const random = new Random(bench.seed);
  const folder = mkdtempSync(join(tmpdir(), 'hotbed-bench-adapter-'));
  try {
    const prompt = randomTokens(random, 16, model.shape.vocabulary);
    const round = async () => {
      const start = performance.now();
      const adapter = await engine.createAdapter(adapterSpec(rank, random.integer(1, 1e9)));
      const created = performance.now();
      const policy = await engine.pin(adapter);
      await engine.sample(sampleRequest(policy, prompt, ['1'], 1));
      const sampled = performance.now();
      engine.release(policy);
      await engine.forwardBackward(adapter, CROSS_ENTROPY, [sequence(random, 16, model.shape.vocabulary)]);
      await engine.optimStep(adapter, ADAM);

      const path = join(folder, 'published.safetensors');
      const publishing = performance.now();
      const version = await engine.pin(adapter);
      const file = await engine.exportWeights(version, path);
      const published = performance.now();
      engine.release(version);
      const writeMs = writeAndHash(join(folder, 'written'), readFileSync(path));

      const snapshot = join(folder, 'snapshot');
      await engine.snapshot(adapter, '1', snapshot);
      const restoring = performance.now();
      const restored = await engine.restore(snapshot);
      const restoredAt = performance.now();
      await engine.dropAdapter(restored.adapter);
      await engine.dropAdapter(adapter);
      return {
        createMs: created - start,
        firstTokenMs: sampled - created,
        publishMs: published - publishing,
        writeMs,
        restoreMs: restoredAt - restoring,
        publishedBytes: file.bytes,
      };
    };
    const { samples, leftOut } = await interleave([{ name: 'adapter', run: round }], bench.rounds, deadline);
    bench.leftOut.push(...leftOut);
    const of = samples[0] ?? [];
    if (of.length === 0) return null;
    const middle = (pick: (sample: (typeof of)[number]) => number) => rounded(median(of.map(pick)));
    return {
      createMs: middle((sample) => sample.createMs),
      firstTokenMs: middle((sample) => sample.firstTokenMs),
      publishMs: middle((sample) => sample.publishMs),
      restoreMs: middle((sample) => sample.restoreMs),
      bytes: await trainedBytes(bench, rank),
      bytesByFormula: adapterBytes(model.shape, rank),
      writeMs: middle((sample) => sample.writeMs),
      publishRatio: middle((sample) => sample.publishMs / sample.writeMs),
      publishedBytes: of[0]?.publishedBytes ?? 0,
    };
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}

/** Milliseconds that writing, syncing and hashing the bytes takes without us. */
function writeAndHash(path: string, bytes: Buffer): number {
  const start = performance.now();
  const file = openSync(path, 'w');
  writeSync(file, bytes);
  fsyncSync(file);
  closeSync(file);
  createHash('sha256').update(bytes).digest('hex');
  return performance.now() - start;
}

/** What the engine holds for an adapter that has trained and is at rest. */
async function trainedBytes({ engine, model, seed }: Bench, rank: number): Promise<number> {
  const random = new Random(seed);
  const adapter = await engine.createAdapter(adapterSpec(rank, 1));
  await engine.forwardBackward(adapter, CROSS_ENTROPY, [sequence(random, 4, model.shape.vocabulary)]);
  await engine.optimStep(adapter, ADAM);
  const memory = await engine.adapterMemory(adapter);
  await engine.dropAdapter(adapter);
  return memory.stateBytes + memory.inFlightBytes + memory.policyBytes + memory.packedBytes;
}
