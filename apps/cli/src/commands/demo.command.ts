import { Option, type Command } from 'commander';
import { InvalidInput } from '#hotbed/contracts';
import { DEFAULT_TENANTS } from '../demo/plan';
import { runAlone } from '../demo/run-alone';
import { runDemo } from '../demo/run-demo';

export function addDemoCommand(program: Command): void {
  program
    .command('demo')
    .description('eight tenants teach one hot base eight skills at the same time; then the platform proves itself')
    .option('--tenants <n>', 'how many of the eight', String(DEFAULT_TENANTS))
    .option('--steps <n>', 'optimizer steps; other than the default the rewards are reported, not judged')
    .option('--keep', 'leave the platform running at the end')
    .addOption(
      new Option(
        '--alone <file>',
        'run one planned tenant alone (the proof runs this in a process of its own)',
      ).hideHelp(),
    )
    .action(async (options: { tenants: string; steps?: string; keep?: boolean; alone?: string }) => {
      if (options.alone !== undefined) return runAlone(options.alone);
      process.exitCode = await runDemo({
        tenants: whole('--tenants', options.tenants, 1, DEFAULT_TENANTS),
        steps: options.steps === undefined ? null : whole('--steps', options.steps, 1, 10_000),
        keep: options.keep === true,
      });
    });
}

function whole(option: string, text: string, min: number, max: number): number {
  const value = Number(text);
  if (Number.isInteger(value) && value >= min && value <= max) return value;
  throw new InvalidInput([{ path: option, message: `expected a whole number from ${min} to ${max}, got "${text}"` }]);
}
