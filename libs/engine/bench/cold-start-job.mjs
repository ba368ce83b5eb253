// A job of its own: node cold-start-job.mjs <addon> <open options as JSON> <adapter spec as JSON>
// Loads the engine, makes an adapter, samples one token, says so and ends.
import { createRequire } from 'node:module';

const [addon, options, spec] = process.argv.slice(2);
const engine = await createRequire(import.meta.url)(addon).open(JSON.parse(options));
const policy = await engine.pin(await engine.createAdapter(JSON.parse(spec)));
const params = { temperature: 1, topK: 0, topP: 1, maxTokens: 1, stopTokenIds: [] };
const request = { policy, prompt: Int32Array.of(1), seeds: ['1'], params, promptLogprobs: false };
await engine.sample(request).result;
process.stdout.write('first token\n', () => process.exit(0));
