import { setTimeout as sleep } from 'node:timers/promises';
import type { AdamParams, AdapterHandle, Branch, Datum, Engine, PolicyHandle } from '../src/engine.types';
import { IMPORTANCE_SAMPLING, sampleRequest } from './workload';
import type { Waits } from './tool-waits';

/** What an experiment learns from. All of it is a function of its arguments: the same for every N. */
export interface Task {
  /** Prompts of a step, each answered by a group of rollouts. */
  prompts(experiment: number, step: number): Int32Array[];
  groupSize: number;
  /** Turns of a rollout; between two of them stands a tool call. */
  turns: number;
  tokensPerTurn: number;
  stopTokenIds: readonly number[];
  /** What the tool answers after turn `turn`. */
  toolResult(experiment: number, step: number, prompt: number, turn: number): Int32Array;
  reward(experiment: number, step: number, prompt: number, answers: readonly Int32Array[]): number;
  adam: AdamParams;
}

/** One synchronous on-policy run: sample a batch, train on it, step, again. Times are of performance.now(). */
export interface ExperimentResult {
  startMs: number;
  finishMs: number;
  stepSeconds: number[];
  /** Mean reward of the last step. */
  reward: number;
}

/** One trajectory: everything after the prompt, where tool results carry no loss. */
interface Rollout {
  tokens: number[];
  logprobs: number[];
  own: boolean[];
  answers: Int32Array[];
}

export interface ExperimentRun {
  task: Task;
  experiment: number;
  steps: number;
  waits: Waits;
}

export async function runExperiment(
  engine: Engine,
  adapter: AdapterHandle,
  run: ExperimentRun,
): Promise<ExperimentResult> {
  const startMs = performance.now();
  const stepSeconds: number[] = [];
  let reward = 0;
  for (let step = 0; step < run.steps; step++) {
    const began = performance.now();
    const batch = await sampleBatch(engine, adapter, run, step);
    await trainOn(engine, adapter, run.task, batch.datums);
    reward = batch.reward;
    stepSeconds.push((performance.now() - began) / 1000);
  }
  return { startMs, finishMs: performance.now(), stepSeconds, reward };
}

/** What one step trains on, sampled from the adapter as it is. */
export interface Batch {
  datums: Datum[];
  /** Mean over its rollouts. */
  reward: number;
}

export async function sampleBatch(
  engine: Engine,
  adapter: AdapterHandle,
  { task, experiment, waits }: ExperimentRun,
  step: number,
): Promise<Batch> {
  const policy = await engine.pin(adapter);
  const prompts = task.prompts(experiment, step);
  const groups = await Promise.all(
    prompts.map((prompt, index) => rollOut(engine, policy, prompt, { task, experiment, waits, step, index })),
  );
  engine.release(policy);
  const rewards = groups.map((rollouts, index) =>
    rollouts.map(({ answers }) => task.reward(experiment, step, index, answers)),
  );
  const datums = groups.flatMap((rollouts, index) =>
    datumOf(prompts[index] ?? Int32Array.of(), rollouts, rewards[index] ?? [], prompts.length),
  );
  return { datums, reward: mean(rewards.flat()) };
}

export async function trainOn(
  engine: Engine,
  adapter: AdapterHandle,
  task: Task,
  datums: readonly Datum[],
): Promise<void> {
  if (datums.length === 0) return;
  await engine.forwardBackward(adapter, IMPORTANCE_SAMPLING, datums);
  await engine.optimStep(adapter, task.adam);
}

interface StepOf {
  task: Task;
  experiment: number;
  step: number;
  index: number;
  waits: Waits;
}

async function rollOut(engine: Engine, policy: PolicyHandle, prompt: Int32Array, of: StepOf): Promise<Rollout[]> {
  const { task } = of;
  const seed = (rollout: number, turn: number) =>
    String((((of.experiment * 4096 + of.step) * 256 + of.index) * 256 + rollout) * 16 + turn);
  const seeds = Array.from({ length: task.groupSize }, (_, rollout) => seed(rollout, 0));
  const { sequences } = await engine.sample(
    sampleRequest(policy, prompt, seeds, task.tokensPerTurn, task.stopTokenIds),
  );
  return Promise.all(
    sequences.map(async (first, rollout) => {
      const all: Rollout = { tokens: [], logprobs: [], own: [], answers: [] };
      add(all, first.tokens, first.policyLogprobs);
      for (let turn = 1; turn < task.turns; turn++) {
        const { experiment, step } = of;
        const waitS = of.waits({ experiment, step, rollout: of.index * task.groupSize + rollout, turn: turn - 1 });
        if (waitS > 0) await sleep(1000 * waitS);
        add(all, task.toolResult(experiment, step, of.index, turn - 1), null);
        const history = Int32Array.from([...prompt, ...all.tokens]);
        const next = await engine.sample(
          sampleRequest(policy, history, [seed(rollout, turn)], task.tokensPerTurn, task.stopTokenIds),
        );
        const [sampled] = next.sequences;
        if (sampled) add(all, sampled.tokens, sampled.policyLogprobs);
      }
      return all;
    }),
  );
}

function add(rollout: Rollout, tokens: Int32Array, logprobs: Float32Array | null): void {
  rollout.tokens.push(...tokens);
  rollout.logprobs.push(...(logprobs ?? new Float32Array(tokens.length)));
  rollout.own.push(...Array.from(tokens, () => logprobs !== null));
  if (logprobs !== null) rollout.answers.push(tokens);
}

/** Group-normalised advantages over the number of rollouts of the step; a group without differences teaches nothing. */
function datumOf(prompt: Int32Array, rollouts: Rollout[], rewards: number[], prompts: number): Datum[] {
  if (rewards.every((reward) => reward === rewards[0])) return [];
  const middle = mean(rewards);
  const deviation = Math.sqrt(mean(rewards.map((reward) => (reward - middle) ** 2)));
  const branches = rollouts.map((rollout, i): Branch => {
    const advantage = ((rewards[i] ?? 0) - middle) / (deviation + 1e-6) / (prompts * rollouts.length);
    return {
      tokens: Int32Array.from(rollout.tokens),
      weights: null,
      logprobs: Float32Array.from(rollout.logprobs),
      advantages: Float32Array.from(rollout.own, (own) => (own ? advantage : 0)),
    };
  });
  return [{ prompt, branches }];
}

const mean = (values: readonly number[]): number => values.reduce((sum, value) => sum + value, 0) / values.length;
