import { readFileSync } from 'node:fs';
import type { Command } from 'commander';
import { InvalidInput, type CommandReply, type ExperimentSummary, type ExperimentView } from '#hotbed/contracts';
import { segment, type ApiClient } from '../api/api-client';
import { print } from '../terminal/print';
import { sparkline } from '../terminal/sparkline';
import { table } from '../terminal/table';
import { stopOption } from './stop-option';

const CURVE_WIDTH = 60;
const EXAMPLES_SHOWN = 8;

interface CreateOptions {
  stream: string;
  verifier: string;
  verifierConfig?: string;
  config?: string;
  rank?: string;
  alpha?: string;
  steps?: string;
  learningRate?: string;
  seed?: string;
  maxTokens?: string;
  stop?: string[];
  checkpointEverySteps?: string;
  trigger?: string;
}

export function addExperimentsCommands(program: Command, api: () => ApiClient): void {
  const experiments = program.command('experiments').description('experiments: one adapter each');

  experiments
    .command('create <name>')
    .description('create an experiment and its adapter')
    .requiredOption('--stream <stream>', 'data stream by name or id')
    .option(
      '--verifier <name>',
      'exact_match, regular_expression, numeric_answer, or an own verifier by name',
      'exact_match',
    )
    .option('--verifier-config <json>', "the verifier's settings")
    .option('--rank <n>')
    .option('--alpha <x>')
    .option('--steps <n>', 'optimizer steps of a training run')
    .option('--learning-rate <x>')
    .option('--seed <n>')
    .option('--max-tokens <n>', 'longest completion')
    .addOption(stopOption())
    .option('--checkpoint-every-steps <n>', 'a version every so many steps')
    .option('--trigger <policy>', 'manual, count:<records> or interval:<seconds>', 'manual')
    .option('--config <file>', 'JSON file with any field of POST /v1/experiments; options above win')
    .action(async (name: string, options: CreateOptions) => {
      const created = await api().post<ExperimentSummary>('/v1/experiments', createBody(name, options));
      print(created, () => `created experiment ${created.name} with adapter ${created.adapterName}`);
    });

  experiments
    .command('list')
    .description('list experiments')
    .action(async () => {
      const reply = await api().get<CommandReply<'orchestrator', 'list-experiments'>>('/v1/experiments', {
        limit: 1000,
      });
      print(reply.experiments, () =>
        table(
          ['name', 'state', 'step', 'of', 'reward', 'version', 'stalled'],
          reply.experiments.map((e) => [
            e.name,
            e.state,
            e.step,
            e.stepsPerRun,
            e.rewardMean?.toFixed(3),
            e.latestVersion,
            e.stalled,
          ]),
        ),
      );
    });

  experiments
    .command('show <experiment>')
    .description('state, curves, example rollouts, and why it stalls')
    .action(async (experiment: string) => {
      const view = await api().get<ExperimentView>(`/v1/experiments/${segment(experiment)}`);
      print(view, () => describeExperiment(view));
    });

  const act = (action: 'trigger' | 'pause' | 'resume' | 'cancel', description: string, said: string) =>
    experiments
      .command(`${action} <experiment>`)
      .description(description)
      .action(async (experiment: string) => {
        const reply = await api().post<unknown>(`/v1/experiments/${segment(experiment)}/${action}`);
        print(reply, () => `${said} ${experiment}`);
      });
  act('trigger', 'start a training run over the records not used yet', 'triggered');
  act('pause', 'hold after the current step', 'pausing');
  act('resume', 'go on', 'resumed');
  act('cancel', 'end for good; versions stay', 'cancelled');
}

/** @throws InvalidInput naming the option */
export function createBody(name: string, options: CreateOptions): Record<string, unknown> {
  const number = (option: string, text: string | undefined) => {
    if (text === undefined) return {};
    const value = Number(text);
    if (!Number.isFinite(value))
      throw new InvalidInput([{ path: `--${option}`, message: `expected a number, got "${text}"` }]);
    return { [option.replace(/-([a-z])/g, (_, letter: string) => letter.toUpperCase())]: value };
  };
  return {
    ...(options.config === undefined ? {} : readJsonFile(options.config)),
    name,
    dataStream: options.stream,
    ...number('rank', options.rank),
    ...number('alpha', options.alpha),
    ...number('steps', options.steps),
    ...number('learning-rate', options.learningRate),
    ...number('max-tokens', options.maxTokens),
    ...number('checkpoint-every-steps', options.checkpointEverySteps),
    ...(options.stop === undefined ? {} : { stopStrings: options.stop }),
    ...(options.seed === undefined ? {} : { seed: options.seed }),
    ...(options.trigger === undefined ? {} : { trigger: triggerOf(options.trigger) }),
    reward: { verifier: options.verifier, config: parseJson('--verifier-config', options.verifierConfig ?? '{}') },
  };
}

function triggerOf(text: string): Record<string, unknown> {
  const [kind, amount] = text.split(':');
  if (kind === 'manual' && amount === undefined) return { kind };
  if (kind === 'count' && /^[0-9]+$/.test(amount ?? '')) return { kind, records: Number(amount) };
  if (kind === 'interval' && Number(amount) > 0) return { kind, everyMs: Math.round(Number(amount) * 1000) };
  throw new InvalidInput([
    { path: '--trigger', message: `expected manual, count:<records> or interval:<seconds>, got "${text}"` },
  ]);
}

function readJsonFile(file: string): Record<string, unknown> {
  let text: string;
  try {
    text = readFileSync(file, 'utf8');
  } catch (error) {
    throw new InvalidInput([{ path: '--config', message: error instanceof Error ? error.message : String(error) }]);
  }
  return parseJson('--config', text);
}

function parseJson(option: string, text: string): Record<string, unknown> {
  try {
    const value: unknown = JSON.parse(text);
    if (typeof value === 'object' && value !== null && !Array.isArray(value)) return value as Record<string, unknown>;
  } catch {
    // Said below, with the option's name.
  }
  throw new InvalidInput([{ path: option, message: 'expected a JSON object' }]);
}

const STALL_TEXT: Record<NonNullable<ExperimentView['stalled']>, string> = {
  groups_without_variance: 'all completions of a prompt get the same reward, so there is nothing to learn from them',
  no_valid_answer: 'no completion has a form that the verifier can judge',
  not_finite: 'the gradient is not finite; try a smaller learning rate',
  waiting_for_worker: 'no worker has answered for a while; is one running?',
};

export function describeExperiment(view: ExperimentView): string {
  const rewards = view.steps.map((s) => s.rewardMean);
  const lines = [
    `${view.name}: ${view.state}, run ${view.runs}, step ${view.step} of ${view.stepsPerRun}`,
    `adapter ${view.adapterName}, rank ${view.adapterSpec.rank}, alpha ${view.adapterSpec.alpha}, version ${view.latestVersion ?? 'none yet'}`,
    `reward ${rewards.at(0)?.toFixed(3) ?? '-'} -> ${rewards.at(-1)?.toFixed(3) ?? '-'}  ${sparkline(rewards, CURVE_WIDTH)}`,
  ];
  if (view.failure !== null) lines.push(`failed: ${view.failure.code}: ${view.failure.message}`);
  if (view.stalled !== null) lines.push(`stalled: ${view.stalled}: ${STALL_TEXT[view.stalled]}`);
  if (view.examples.length > 0) {
    const examples = view.examples.slice(-EXAMPLES_SHOWN);
    lines.push(
      '',
      table(
        ['step', 'prompt', 'completion', 'expected', 'reward'],
        examples.map((e) => [e.step, JSON.stringify(e.prompt), JSON.stringify(e.completion), e.answer, e.reward]),
      ),
    );
  }
  return lines.join('\n');
}
