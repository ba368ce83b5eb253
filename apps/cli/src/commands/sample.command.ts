import type { Command } from 'commander';
import type { CommandReply } from '#hotbed/contracts';
import { segment, type ApiClient } from '../api/api-client';
import { print } from '../terminal/print';
import { stopOption } from './stop-option';

interface SampleOptions {
  temperature?: string;
  maxTokens?: string;
  seed?: string;
  samples?: string;
  stop?: string[];
}

export function addSampleCommand(program: Command, api: () => ApiClient): void {
  program
    .command('sample <model> <prompt>')
    .description('sample from <adapter>@<alias or version>, or from "base"')
    .option('--temperature <x>')
    .option('--max-tokens <n>')
    .option('--seed <n>')
    .option('--samples <n>', 'completions', '1')
    .addOption(stopOption())
    .action(async (model: string, prompt: string, options: SampleOptions) => {
      const path = model === 'base' ? '/v1/base/sample' : `/v1/adapters/${segment(model)}/sample`;
      const reply = await api().post<{ prompts: CommandReply<'orchestrator', 'read-samples'>['prompts'] }>(path, {
        prompt,
        samplesPerPrompt: Number(options.samples),
        ...(options.temperature === undefined ? {} : { temperature: Number(options.temperature) }),
        ...(options.maxTokens === undefined ? {} : { maxTokens: Number(options.maxTokens) }),
        ...(options.stop === undefined ? {} : { stopStrings: options.stop }),
        ...(options.seed === undefined ? {} : { seed: options.seed }),
      });
      print(reply, () => reply.prompts.flatMap((p) => p.completions.map((c) => c.text)).join('\n'));
    });
}
