import { Inject, Injectable } from '@nestjs/common';
import { DomainError, Unavailable, parseInput, type CommandInput, type CommandReply } from '#hotbed/contracts';
import { z } from 'zod';
import { COMMANDS_PORT, type Asker, type Commands } from '../http/commands';
import { LOG_WATCH, type LogWatch } from '../events/log-watch';

/** How long a caller waits for its samples before 503; the request stays and is answered all the same. */
export const SAMPLE_TIMEOUT_MS = 60_000;
/** A lost wake-up costs at most this much. */
const RECHECK_MS = 500;

const sampleBodySchema = z.strictObject({
  prompt: z.string().min(1).max(65536).optional(),
  prompts: z.array(z.string().min(1).max(65536)).min(1).max(256).optional(),
  samplesPerPrompt: z.number().int().min(1).max(64).default(1),
  seed: z.string().optional(),
  temperature: z.number().optional(),
  topK: z.number().optional(),
  topP: z.number().optional(),
  maxTokens: z.number().optional(),
});

export interface SampleAnswer {
  /** null = the plain base. */
  adapter: { adapterId: string; version: number; opIndex: string; weightsDigest: string } | null;
  requestId: string;
  prompts: CommandReply<'orchestrator', 'read-samples'>['prompts'];
}

/** Samples from a version (or the plain base): a durable request, then its recorded completions as text. */
@Injectable()
export class SampleHandler {
  constructor(
    @Inject(COMMANDS_PORT) private readonly commands: Commands,
    @Inject(LOG_WATCH) private readonly watch: LogWatch,
  ) {}

  /** @param modelRef `<adapter>@<alias or version>`, `<adapter>` (latest), or null for the base */
  async sample(asker: Asker, modelRef: string | null, body: unknown): Promise<SampleAnswer> {
    const { prompt, prompts, samplesPerPrompt, seed, ...sampling } = parseInput(sampleBodySchema, body ?? {});
    if ((prompt === undefined) === (prompts === undefined)) {
      parseInput(z.never({ error: 'give either prompt or prompts' }), prompt ?? null, 'prompt');
    }
    const version = modelRef === null ? null : await this.resolve(asker, modelRef);
    const request: CommandInput<'orchestrator', 'request-samples'> = {
      adapterId: version?.adapterId ?? null,
      opIndex: version?.opIndex ?? null,
      prompts: prompts ?? [prompt!],
      samplesPerPrompt,
      seed: seed ?? null,
      sampling,
    };
    const { requestId, streamId, requestVersion } = await this.commands.request(
      asker,
      'orchestrator',
      'request-samples',
      request,
    );
    const answer = await this.waitForSamples(asker, { requestId, streamId, requestVersion });
    return {
      adapter:
        version === null
          ? null
          : {
              adapterId: version.adapterId,
              version: version.version,
              opIndex: version.opIndex,
              weightsDigest: version.weightsDigest,
            },
      requestId,
      prompts: answer.prompts,
    };
  }

  private async resolve(asker: Asker, modelRef: string) {
    const { adapter, ref } = splitModelRef(modelRef);
    const { version } = await this.commands.request(asker, 'registry', 'resolve', { adapter, ref });
    return version;
  }

  private async waitForSamples(asker: Asker, request: CommandInput<'orchestrator', 'read-samples'>) {
    const deadline = Date.now() + SAMPLE_TIMEOUT_MS;
    for (;;) {
      const change = this.watch.next(RECHECK_MS);
      try {
        return await this.commands.request(asker, 'orchestrator', 'read-samples', request);
      } catch (error) {
        if (!(error instanceof DomainError) || error.code !== 'not_complete') throw error;
      }
      if (Date.now() > deadline) {
        throw new Unavailable(
          'samples_pending',
          'no worker has answered in time; is a worker running? try again later',
          {
            context: { requestId: request.requestId },
            retryAfterMs: 1_000,
          },
        );
      }
      await change;
    }
  }
}

/** `name@latest` -> name and alias or version; the last `@` counts. */
export function splitModelRef(modelRef: string): { adapter: string; ref: string | null } {
  const at = modelRef.lastIndexOf('@');
  return at < 0 ? { adapter: modelRef, ref: null } : { adapter: modelRef.slice(0, at), ref: modelRef.slice(at + 1) };
}
