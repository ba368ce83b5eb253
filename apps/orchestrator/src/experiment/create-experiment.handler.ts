import { createHash } from 'node:crypto';
import {
  DomainError,
  InvalidInput,
  canonicalJson,
  idSchema,
  newId,
  streamId,
  type AnyNewEvent,
  type CommandReply,
  type CommandRequest,
  type EventStore,
  type ExperimentCreated,
  type ExperimentSummary,
  type Transactions,
} from '#hotbed/contracts';
import { NO_ADAPTER, decideCreateAdapter } from '#hotbed/adapters';
import { findVerifier } from '#hotbed/verifiers';
import type { Bases, LoadedBase } from '#hotbed/models';
import { evolve, NO_EXPERIMENT } from './experiment';
import { experimentRows } from './experiment-rows';
import { toSummary } from './experiment-summary';

type Request = CommandRequest<'orchestrator', 'create-experiment'>;

/** Creates an experiment and the adapter that it owns, in one append. */
export class CreateExperimentHandler {
  constructor(
    private readonly store: EventStore,
    private readonly transactions: Transactions,
    private readonly bases: Bases,
    private readonly verifierFolder: string | null,
    private readonly now: () => number = Date.now,
  ) {}

  /** @throws InvalidInput naming the field, NotFound data stream, NameTaken, IdempotencyConflict */
  async create(tenantId: string, request: Request): Promise<CommandReply<'orchestrator', 'create-experiment'>> {
    const base = await this.bases.resolve(request.base);
    await this.assertSensible(request, base);
    const dataStreamId = await this.dataStreamId(tenantId, request.dataStream);
    const { eosTokenIds } = await this.bases.textOf(base.baseDigest);
    const created = toCreated(request, base, dataStreamId, eosTokenIds);

    const nowMs = this.now();
    const experiment = evolve(NO_EXPERIMENT, { type: 'ExperimentCreated', payload: created });
    if (experiment.status === 'absent') throw new Error('a created experiment exists');
    const row = { tenantId, streamVersion: 1n, createdAtMs: nowMs, changedAtMs: nowMs, experiment };
    const answer = toSummary(row, nowMs, new Set([base.baseDigest]));
    try {
      await this.transactions.run(async (uow) => {
        await experimentRows.insert(uow, row);
        const [result] = await uow.append([toItem(tenantId, request, created, answer, nowMs)]);
        // The row just inserted is of an experiment that does not exist: roll it back.
        if (result?.outcome === 'replayed') throw new Replayed(result.answer as ExperimentSummary);
      });
    } catch (error) {
      if (error instanceof Replayed) return error.answer;
      throw error;
    }
    return answer;
  }

  private async assertSensible(request: Request, base: LoadedBase): Promise<void> {
    const problems = [];
    if (request.loss.name === 'cross_entropy') {
      problems.push({ path: 'loss.name', message: 'GRPO learns from advantages: expected importance_sampling or ppo' });
    }
    if (request.maxTokens >= base.contextLength) {
      problems.push({
        path: 'maxTokens',
        message: `expected less than the context length of ${base.name}, ${base.contextLength}`,
      });
    }
    if (problems.length > 0) throw new InvalidInput(problems);
    await findVerifier(request.reward, this.verifierFolder);
  }

  private async dataStreamId(tenantId: string, ref: string): Promise<string> {
    const byName = await this.store.idOfName(tenantId, 'data-stream', ref);
    if (byName !== null) return byName;
    if (idSchema.safeParse(ref).success) {
      const [created] = await this.store.readStream(streamId('data-stream', ref), { limit: 1 });
      if (created?.type === 'DataStreamCreated' && created.tenantId === tenantId) return ref;
    }
    const message = `no data stream "${ref}"; create it first`;
    throw new DomainError('NotFound', 'data_stream_not_found', `dataStream: ${message}`, {
      fields: [{ path: 'dataStream', message }],
      context: { id: ref },
    });
  }
}

/** Carries the stored answer of the same command out of a transaction that must roll back. */
class Replayed extends Error {
  constructor(readonly answer: ExperimentSummary) {
    super('the command was answered before');
  }
}

function toCreated(
  request: Request,
  base: LoadedBase,
  dataStreamId: string,
  stopTokenIds: readonly number[],
): ExperimentCreated {
  const { rank, alpha, rslora, targets, seed, loss, schedule, reward, trigger, checkpointEverySteps } = request;
  const { learningRate, beta1, beta2, eps, weightDecay, gradClipNorm } = request;
  const { temperature, topK, topP, maxTokens } = request;
  return {
    experimentId: newId(),
    name: request.name,
    adapterId: newId(),
    adapterName: request.adapter ?? request.name,
    dataStreamId,
    baseDigest: base.baseDigest,
    numericsId: base.numericsId,
    adapterSpec: { rank, alpha, rslora, targets, seed },
    algorithm: {
      kind: 'grpo',
      stepsPerRun: request.steps,
      promptsPerStep: request.promptsPerStep,
      samplesPerPrompt: request.samplesPerPrompt,
      loss,
      adam: { learningRate, beta1, beta2, eps, weightDecay, gradClipNorm },
      schedule,
      sampling: { temperature, topK, topP, maxTokens, stopTokenIds: [...stopTokenIds] },
    },
    reward,
    trigger,
    checkpointEverySteps,
    seed,
  };
}

function toItem(
  tenantId: string,
  request: Request,
  created: ExperimentCreated,
  answer: ExperimentSummary,
  nowMs: number,
) {
  const { experimentId, adapterId } = created;
  const adapter = decideCreateAdapter(NO_ADAPTER, tenantId, {
    adapterId,
    name: created.adapterName,
    spec: created.adapterSpec,
    baseDigest: created.baseDigest,
    numericsId: created.numericsId,
    experimentId,
  });
  const meta = {
    tenantId,
    occurredAtMs: nowMs,
    actor: 'app:orchestrator',
    correlationId: experimentId,
    causationId: null,
  };
  const write = (stream: string, event: AnyNewEvent) =>
    ({ streamId: stream, expected: 'none', events: [event] }) as const;
  const { idempotencyKey, ...content } = request;
  return {
    writes: [
      write(streamId('experiment', experimentId), {
        ...meta,
        eventId: newId(),
        type: 'ExperimentCreated',
        payload: created,
      }),
      write(streamId('adapter', adapterId), {
        ...meta,
        eventId: newId(),
        type: 'AdapterCreated',
        payload: adapter.payload,
      }),
    ],
    heads: [adapter.head],
    names: [{ tenantId, kind: 'experiment', name: created.name, id: experimentId }, adapter.name],
    ...(idempotencyKey === null
      ? {}
      : {
          idempotency: {
            tenantId,
            key: `create-experiment/${idempotencyKey}`,
            requestHash: createHash('sha256').update(canonicalJson(content)).digest('hex'),
            answer,
          },
        }),
  };
}
