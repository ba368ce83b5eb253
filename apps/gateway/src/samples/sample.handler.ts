import { Inject, Injectable } from '@nestjs/common';
import {
  COMMANDS,
  DomainError,
  Unavailable,
  idSchema,
  parseInput,
  samplingSchema,
  u64Schema,
  type CommandInput,
} from '#hotbed/contracts';
import { z } from 'zod';
import { COMMANDS_PORT, type Asker, type Commands } from '../http/commands';
import { parseAdapterRef } from '../adapters/adapter-ref';
import { LOG_WATCH, type LogWatch } from '../events/log-watch';

/** How long a caller waits for its samples before 503; the request stays and is answered all the same. */
export const SAMPLE_TIMEOUT_MS = 60_000;
/** A lost wake-up costs at most this much. */
const RECHECK_MS = 500;

/** What the door takes. How to sample is checked by the owner of the command, which names the wrong field. */
export const sampleBodySchema = z
  .strictObject({
    prompt: z.string().min(1).max(65536).optional().describe('one prompt; else give prompts'),
    prompts: z.array(z.string().min(1).max(65536)).min(1).max(256).optional(),
    samplesPerPrompt: z.number().int().min(1).max(64).default(1),
    seed: u64Schema.optional().describe('left out: a new one for every request'),
    ...samplingSchema.omit({ stopTokenIds: true }).partial().shape,
  })
  .refine(({ prompt, prompts }) => (prompt === undefined) !== (prompts === undefined), {
    path: ['prompt'],
    error: 'give either prompt or prompts',
  });

export const sampleAnswerSchema = z.object({
  adapter: COMMANDS.registry.resolve.reply.shape.version
    .pick({ adapterId: true, version: true, opIndex: true, weightsDigest: true })
    .nullable()
    .describe('null = the plain base'),
  requestId: idSchema,
  prompts: COMMANDS.orchestrator['read-samples'].reply.shape.prompts,
});
export type SampleAnswer = z.infer<typeof sampleAnswerSchema>;

/** Samples from a version (or the plain base): a durable request, then its recorded completions as text. */
@Injectable()
export class SampleHandler {
  constructor(
    @Inject(COMMANDS_PORT) private readonly commands: Commands,
    @Inject(LOG_WATCH) private readonly watch: LogWatch,
  ) {}

  /** @param adapterRef `<adapter>@<alias or version>`, `<adapter>` (latest), or null for the base */
  async sample(asker: Asker, adapterRef: string | null, body: unknown): Promise<SampleAnswer> {
    const { prompt, prompts, samplesPerPrompt, seed, ...sampling } = parseInput(sampleBodySchema, body ?? {});
    const version = adapterRef === null ? null : await this.resolve(asker, adapterRef);
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

  private async resolve(asker: Asker, adapterRef: string) {
    const { adapter, ref } = parseAdapterRef(adapterRef);
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
