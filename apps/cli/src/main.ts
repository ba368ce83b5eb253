import 'reflect-metadata';
import { Command } from 'commander';
import { DomainError } from '#hotbed/contracts';
import { ConfigError } from '#hotbed/runtime';
import { configuredApi } from './api/configured-api';
import { addAdaptersCommands } from './commands/adapters.command';
import { addAuditCommands } from './commands/audit.command';
import { addDemoCommand } from './commands/demo.command';
import { addDoctorCommand } from './commands/doctor.command';
import { addExperimentsCommands } from './commands/experiments.command';
import { addLanesCommands } from './commands/lanes.command';
import { addSampleCommand } from './commands/sample.command';
import { addSetupCommands } from './commands/setup.commands';
import { addStreamsCommands } from './commands/streams.command';
import { addTenantsCommands } from './commands/tenants.command';
import { addUpCommand } from './commands/up.command';
import { printJson } from './terminal/print';

const program = new Command('hotbed')
  .description('Continual learning on one hot base model: every adapter is a fold over its events')
  .option('--json', 'answers as one JSON document')
  .hook('preAction', (_program, action) => printJson(action.optsWithGlobals<{ json?: boolean }>().json === true));

addUpCommand(program);
addDemoCommand(program);
addStreamsCommands(program, configuredApi);
addExperimentsCommands(program, configuredApi);
addAdaptersCommands(program, configuredApi);
addSampleCommand(program, configuredApi);
addTenantsCommands(program, configuredApi);
addAuditCommands(program, configuredApi);
addLanesCommands(program);
addDoctorCommand(program);
addSetupCommands(program);

program.parseAsync().catch((error: unknown) => {
  process.stderr.write(`${explain(error)}\n`);
  process.exit(1);
});

/** Expected failures in one line each; a bug with its stack. */
function explain(error: unknown): string {
  if (error instanceof ConfigError) return error.message;
  if (error instanceof DomainError) return `${error.code}: ${error.message}`;
  if (error instanceof Error) return error.stack ?? error.message;
  return String(error);
}
