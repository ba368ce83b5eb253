import { createHash } from 'node:crypto';
import {
  InvalidInput,
  NotFound,
  derivedId,
  int32Tensor,
  newId,
  rolloutSeed,
  streamId,
  type CommandReply,
  type CommandRequest,
  type EventStore,
  type SamplingPayload,
} from '#hotbed/contracts';
import type { Bases } from '#hotbed/models';

type Request = CommandRequest<'orchestrator', 'request-samples'>;

/** What is sampled: a policy state of an adapter, or the plain base. */
interface SampledPolicy {
  baseDigest: string;
  numericsId: string;
  adapterId: string | null;
  opIndex: bigint | null;
  streamKey: string;
}

/** Where the caller names none; fewer where the context or the answer has no room for so many. */
const DEFAULT_MAX_TOKENS = 128;

/** Prompts and answers must fit into one reply of `read-samples`: as JSON about 32 bytes a token, 160 a completion. */
const ANSWER_BYTES = { most: 450_000, token: 32, completion: 160 };

/** Asks workers for completions of given prompts, outside any experiment. */
export class RequestSamplesHandler {
  constructor(
    private readonly store: EventStore,
    private readonly bases: Bases,
    private readonly now: () => number = Date.now,
  ) {}

  /** @throws InvalidInput naming the field, NotFound adapter */
  async request(
    tenantId: string,
    request: Request,
    actor: string,
  ): Promise<CommandReply<'orchestrator', 'request-samples'>> {
    const policy = await this.policyOf(tenantId, request);
    const { tokenizer, contextLength, eosTokenIds } = await this.bases.textOf(policy.baseDigest);
    const sampling: SamplingPayload = {
      temperature: 1,
      topK: 0,
      topP: 1,
      maxTokens: Math.min(DEFAULT_MAX_TOKENS, contextLength - 1, Math.max(1, fittingTokens(request))),
      stopTokenIds: [...eosTokenIds],
      ...request.sampling,
    };
    assertAnswerFits(request, sampling.maxTokens);
    const prompts = request.prompts.map((text, i) => {
      const tokens = tokenizer.encode(text, `prompts[${i}]`);
      if (tokens.length < contextLength) return tokens;
      const message = `has ${tokens.length} tokens; the context of this base has ${contextLength}`;
      throw new InvalidInput([{ path: `prompts[${i}]`, message }]);
    });
    const requestId = newId();
    const seed = request.seed ?? seedOfRequest(requestId);
    const stream = streamId('rollouts', policy.streamKey);
    const result = await this.store.append({
      writes: [
        {
          streamId: stream,
          expected: 'any',
          events: [
            {
              eventId: newId(),
              type: 'RolloutsRequested',
              tenantId,
              occurredAtMs: this.now(),
              actor,
              correlationId: requestId,
              causationId: null,
              payload: {
                requestId,
                purpose: 'sample',
                experimentId: null,
                runOrdinal: null,
                step: null,
                adapterId: policy.adapterId,
                opIndex: policy.opIndex?.toString() ?? null,
                baseDigest: policy.baseDigest,
                numericsId: policy.numericsId,
                prompts: prompts.map((tokens, promptIndex) => ({
                  promptIndex,
                  record: null,
                  subjectIds: [],
                  tokens: int32Tensor(tokens),
                  seeds: Array.from({ length: request.samplesPerPrompt }, (_, sampleIndex) =>
                    rolloutSeed(seed, 0, 0, promptIndex, sampleIndex),
                  ),
                })),
                sampling,
                reward: null,
              },
            },
          ],
        },
      ],
      requests: [
        {
          change: 'open',
          requestId,
          promptIndexes: prompts.map((_, promptIndex) => promptIndex),
          streamId: stream,
          tenantId,
          adapterId: policy.adapterId,
          opIndex: policy.opIndex,
        },
      ],
    });
    if (result.outcome !== 'appended') throw new Error('an append without idempotency key is never replayed');
    const requestVersion = result.streams[0]?.firstVersion ?? 0n;
    return { requestId, streamId: stream, requestVersion: requestVersion.toString(), prompts: prompts.length };
  }

  private async policyOf(tenantId: string, { adapterId, opIndex }: Request): Promise<SampledPolicy> {
    if (adapterId === null) {
      if (opIndex !== null) {
        throw new InvalidInput([{ path: 'opIndex', message: 'the plain base has no operations; send null' }]);
      }
      const { baseDigest, numericsId } = await this.bases.resolve(null, 'adapterId');
      const streamKey = derivedId(tenantId, `base/${baseDigest}`);
      return { baseDigest, numericsId, adapterId: null, opIndex: null, streamKey };
    }
    const [created] = await this.store.readStream(streamId('adapter', adapterId), { limit: 1 });
    if (created?.type !== 'AdapterCreated' || created.tenantId !== tenantId) throw new NotFound('adapter', adapterId);
    const head = await this.store.adapterHead(adapterId);
    const newest = (head?.nextOpIndex ?? 1n) - 1n;
    const wanted = opIndex === null ? newest : BigInt(opIndex);
    if (wanted > newest) {
      throw new InvalidInput([{ path: 'opIndex', message: `expected at most ${newest}, the newest operation` }]);
    }
    const { baseDigest, numericsId } = created.payload;
    return { baseDigest, numericsId, adapterId, opIndex: wanted, streamKey: adapterId };
  }
}

/** Most tokens of each completion with which all of them fit into one answer. */
function fittingTokens({ prompts, samplesPerPrompt }: Request): number {
  const shown = prompts.reduce((bytes, prompt) => bytes + Buffer.byteLength(JSON.stringify(prompt)), 0);
  const room = (ANSWER_BYTES.most - shown) / (prompts.length * samplesPerPrompt);
  return Math.floor((room - ANSWER_BYTES.completion) / ANSWER_BYTES.token);
}

/** @throws InvalidInput before anything is sampled */
function assertAnswerFits(request: Request, maxTokens: number): void {
  if (maxTokens <= fittingTokens(request)) return;
  const completions = request.prompts.length * request.samplesPerPrompt;
  const message = `${completions} completions of up to ${maxTokens} tokens do not fit into one answer; ask in several requests or lower sampling.maxTokens`;
  throw new InvalidInput([{ path: 'prompts', message }]);
}

/** Seed of a request that names none: the first 8 bytes, little-endian, of SHA-256('hotbed.seed.request.1' || id). */
function seedOfRequest(requestId: string): string {
  const digest = createHash('sha256').update('hotbed.seed.request.1').update(requestId).digest();
  return digest.readBigUInt64LE(0).toString();
}
