import { createHash } from 'node:crypto';
import { readFile } from 'node:fs/promises';
import { Worker } from 'node:worker_threads';
import { pathToFileURL } from 'node:url';
import { z } from 'zod';
import { VerifierError, type Completion, type Verdict } from '#hotbed/verifiers';

/** Time that a file has for one prompt's completions, loading included. */
export const TIME_LIMIT_MS = 10_000;
const MEMORY_MIB = 128;

/**
 * What runs in the thread. The file's default export is called once per completion with
 * { prompt, completion, answer, metadata, config } and gives { reward, valid } or a number; it may be async.
 */
const THREAD = `
  const { parentPort, workerData } = require('node:worker_threads');
  const loaded = import(workerData.url);
  parentPort.on('message', async ({ completions, config }) => {
    try {
      const { default: judge } = await loaded;
      if (typeof judge !== 'function') throw new Error('the file has no function as its default export');
      const verdicts = [];
      for (const completion of completions) {
        const verdict = await judge({ ...completion, config });
        verdicts.push(typeof verdict === 'number' ? { reward: verdict, valid: true } : verdict);
      }
      parentPort.postMessage({ verdicts });
    } catch (error) {
      parentPort.postMessage({ error: String(error && error.message ? error.message : error) });
    }
  });
`;

const answerSchema = z.union([
  z.object({ verdicts: z.array(z.object({ reward: z.number(), valid: z.boolean().default(true) })) }),
  z.object({ error: z.string() }),
]);

/** A verifier file at one content, in a thread with limits of its own, kept for the next completions. */
export class OwnVerifierThread {
  private worker: Worker | null = null;
  private queue: Promise<unknown> = Promise.resolve();

  private constructor(
    private readonly path: string,
    /** SHA-256 hex of the file. */
    readonly digest: string,
    private readonly timeLimitMs: number,
  ) {}

  /** @throws VerifierError `verifier_not_found` */
  static async open(path: string, timeLimitMs = TIME_LIMIT_MS): Promise<OwnVerifierThread> {
    return new OwnVerifierThread(path, await fileDigest(path), timeLimitMs);
  }

  /** Verdicts in order. One call at a time. @throws VerifierError `verifier_failed`, `verifier_timeout` */
  judge(completions: readonly Completion[], config: Record<string, unknown>): Promise<Verdict[]> {
    const result = this.queue.then(() => this.ask(completions, config));
    this.queue = result.catch(() => undefined);
    return result;
  }

  async close(): Promise<void> {
    const { worker } = this;
    this.worker = null;
    await worker?.terminate();
  }

  private async ask(completions: readonly Completion[], config: Record<string, unknown>): Promise<Verdict[]> {
    const worker = (this.worker ??= this.spawn());
    try {
      const answer = answerSchema.safeParse(await reply(worker, { completions, config }, this.timeLimitMs));
      if (!answer.success) throw failed(this.path, 'expected { reward: number, valid: boolean } or a number');
      if ('error' in answer.data) throw failed(this.path, answer.data.error);
      return answer.data.verdicts;
    } catch (error) {
      // Whatever state the thread is in now, the next completions get a fresh one.
      await this.close();
      if (error instanceof VerifierError) throw error;
      throw failed(this.path, error instanceof Error ? error.message : String(error));
    }
  }

  private spawn(): Worker {
    const worker = new Worker(THREAD, {
      eval: true,
      workerData: { url: pathToFileURL(this.path).href },
      env: {},
      stdout: true,
      stderr: true,
      resourceLimits: { maxOldGenerationSizeMb: MEMORY_MIB, maxYoungGenerationSizeMb: 16 },
    });
    worker.unref();
    // Between two calls nobody else listens; `reply` hears of it as the exit of the thread.
    worker.on('error', () => undefined);
    return worker;
  }
}

export async function fileDigest(path: string): Promise<string> {
  try {
    return createHash('sha256')
      .update(await readFile(path))
      .digest('hex');
  } catch (error) {
    throw new VerifierError('verifier_not_found', `cannot read the verifier file ${path}`, { cause: error });
  }
}

function reply(worker: Worker, question: unknown, timeLimitMs: number): Promise<unknown> {
  return new Promise((resolve, reject) => {
    const timer = setTimeout(() => {
      done();
      reject(new VerifierError('verifier_timeout', `the verifier needs more than ${timeLimitMs} ms for one prompt`));
    }, timeLimitMs);
    const onMessage = (answer: unknown): void => {
      done();
      resolve(answer);
    };
    const onError = (error: Error): void => {
      done();
      reject(error);
    };
    const onExit = (): void => {
      done();
      reject(new Error('the verifier ended its thread'));
    };
    const done = (): void => {
      clearTimeout(timer);
      worker.off('message', onMessage).off('error', onError).off('exit', onExit);
    };
    worker.on('message', onMessage).on('error', onError).on('exit', onExit);
    worker.postMessage(question);
  });
}

function failed(path: string, message: string): VerifierError {
  return new VerifierError('verifier_failed', `${path}: ${message}`);
}
