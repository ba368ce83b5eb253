// The peer that decodes: llama.cpp through node-llama-cpp, greedy. It is run from a copy beside its node_modules:
//   node llama_cpp_peer.mjs <gguf> <threads> <most rows> <tokens>
// Reads {"rows": n, "flashAttention": bool} lines, answers {"seconds": s}. First line out: {"versions": "..."}.
import { readFileSync } from 'node:fs';
import { performance } from 'node:perf_hooks';
import { createInterface } from 'node:readline';
import { getLlama } from 'node-llama-cpp';

const [gguf, threadsText, mostText, tokensText] = process.argv.slice(2);
const threads = Number(threadsText);
const most = Number(mostText);
const tokens = Number(tokensText);

const own = JSON.parse(readFileSync(new URL('./node_modules/node-llama-cpp/package.json', import.meta.url), 'utf8'));
const llama = await getLlama({ gpu: false, build: 'never', maxThreads: threads, logLevel: 'error' });
const model = await llama.loadModel({ modelPath: gguf, useMmap: false });
const contexts = new Map();

async function contextOf(rows, flashAttention) {
  const key = `${rows} ${flashAttention}`;
  if (!contexts.has(key)) {
    // Only as many sequences and cells as this row count needs: the smallest cache is the fastest.
    const context = await model.createContext({
      sequences: rows,
      contextSize: Math.max(256, 2 * tokens),
      batchSize: Math.max(32, rows),
      threads,
      flashAttention,
    });
    const sequences = Array.from({ length: rows }, () => context.getSequence());
    contexts.set(key, sequences);
  }
  return contexts.get(key);
}

/** `tokens` greedy tokens behind a prompt of one. */
async function decode(sequence, first) {
  await sequence.clearHistory();
  let count = 0;
  for await (const token of sequence.evaluate([first], { temperature: 0, yieldEogToken: true })) {
    if (token === undefined || ++count === tokens) break;
  }
  if (count !== tokens) throw new Error(`${count} of ${tokens} tokens`);
}

console.log(
  JSON.stringify({ versions: `node-llama-cpp ${own.version}, llama.cpp ${llama.llamaCppRelease?.release ?? ''}` }),
);
for await (const line of createInterface({ input: process.stdin })) {
  const { rows, flashAttention } = JSON.parse(line);
  if (rows > most) throw new Error(`at most ${most} rows`);
  const sequences = await contextOf(rows, flashAttention);
  const start = performance.now();
  await Promise.all(sequences.map((sequence, i) => decode(sequence, 300 + i)));
  console.log(JSON.stringify({ seconds: (performance.now() - start) / 1000 }));
}
process.exit(0);
