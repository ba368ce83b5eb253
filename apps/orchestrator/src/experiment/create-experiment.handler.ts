import { createHash } from 'node:crypto';
import {
  DomainError,
  InvalidInput,
  canonicalJson,
  newId,
  takesAdvantages,
  type AppendItem,
  type CommandReply,
  type CommandRequest,
  type EventStore,
  type ExperimentCreated,
  type ExperimentSummary,
  type Transactions,
} from '#hotbed/contracts';
import { NO_ADAPTER, decideCreateAdapter, lossProblems } from '#hotbed/adapters';
import { findVerifier } from '#hotbed/verifiers';
import type { Bases, LoadedBase } from '#hotbed/models';
import { idOfNameOrId } from '../name-or-id';
import { toAppendItem } from './append-item';
import { evolve, NO_EXPERIMENT, type OpenExperiment } from './experiment';
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
  async create(
    tenantId: string,
    request: Request,
    actor: string,
  ): Promise<CommandReply<'orchestrator', 'create-experiment'>> {
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
        const [result] = await uow.append([toItem(request, row, answer, actor)]);
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
    const problems = lossProblems(request.loss, 'loss');
    if (!takesAdvantages(request.loss.name)) {
      const message = 'GRPO learns from advantages: expected importance_sampling, ppo, cispo, dro or gspo';
      problems.push({ path: 'loss.name', message });
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
    const dataStreamId = await idOfNameOrId(this.store, tenantId, 'data-stream', ref);
    if (dataStreamId !== null) return dataStreamId;
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
  const { temperature, topK, topP, maxTokens, stopStrings } = request;
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
      sampling: {
        temperature,
        topK,
        topP,
        maxTokens,
        stopTokenIds: [...stopTokenIds],
        ...(stopStrings === undefined ? {} : { stopStrings }),
      },
    },
    reward,
    trigger,
    checkpointEverySteps,
    seed,
  };
}

interface Created {
  tenantId: string;
  createdAtMs: number;
  experiment: OpenExperiment;
}

function toItem(
  { idempotencyKey, ...content }: Request,
  { tenantId, createdAtMs, experiment }: Created,
  answer: ExperimentSummary,
  actor: string,
): AppendItem {
  const { created } = experiment;
  const { experimentId, adapterId, baseDigest, numericsId } = created;
  const adapter = decideCreateAdapter(NO_ADAPTER, tenantId, {
    adapterId,
    name: created.adapterName,
    spec: created.adapterSpec,
    baseDigest,
    numericsId,
    experimentId,
  });
  const item = toAppendItem(
    experiment,
    [
      { type: 'ExperimentCreated', payload: created },
      { type: 'AdapterCreated', payload: adapter.payload },
    ],
    { tenantId, nowMs: createdAtMs, actor, causationId: null, newEventId: newId, experimentVersion: 0n },
  );
  const names = [{ tenantId, kind: 'experiment' as const, name: created.name, id: experimentId }, adapter.name];
  if (idempotencyKey === null) return { ...item, names };
  const requestHash = createHash('sha256').update(canonicalJson(content)).digest('hex');
  return {
    ...item,
    names,
    idempotency: { tenantId, key: `create-experiment/${idempotencyKey}`, requestHash, answer },
  };
}
