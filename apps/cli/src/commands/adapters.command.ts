import { mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import type { Command } from 'commander';
import type { AdapterView, CommandReply } from '#hotbed/contracts';
import { segment, type ApiClient } from '../api/api-client';
import { print } from '../terminal/print';
import { table } from '../terminal/table';

const PEFT_FILES = ['adapter_model.safetensors', 'adapter_config.json'] as const;
const DIGEST_SHOWN = 16;

export function addAdaptersCommands(program: Command, api: () => ApiClient): void {
  const adapters = program.command('adapters').description('adapters, versions, lineage');

  adapters
    .command('list')
    .description('list adapters')
    .action(async () => {
      const reply = await api().get<CommandReply<'registry', 'list-adapters'>>('/v1/adapters', { limit: 1000 });
      print(reply, () =>
        table(
          ['name', 'rank', 'operations', 'version', 'id'],
          reply.adapters.map((a) => [a.name, a.spec.rank, Number(a.appliedOpIndex), a.latestVersion, a.adapterId]),
        ),
      );
    });

  adapters
    .command('show <adapter>')
    .description('one adapter with its aliases')
    .action(async (adapter: string) => {
      const reply = await api().get<{ adapter: AdapterView }>(`/v1/adapters/${segment(adapter)}`);
      print(reply, () => JSON.stringify(reply.adapter, null, 2));
    });

  adapters
    .command('versions <adapter>')
    .description('versions, oldest first')
    .action(async (adapter: string) => {
      const path = `/v1/adapters/${segment(adapter)}/versions`;
      const reply = await api().get<CommandReply<'registry', 'list-versions'>>(path, { limit: 1000 });
      print(reply, () =>
        table(
          ['version', 'operation', 'weights', 'state', 'created'],
          reply.versions.map((v) => [
            v.version,
            Number(v.opIndex),
            v.weightsDigest.slice(0, DIGEST_SHOWN),
            v.stateDigest.slice(0, DIGEST_SHOWN),
            new Date(v.createdAtMs).toISOString(),
          ]),
        ),
      );
    });

  adapters
    .command('lineage <adapter> <version>')
    .description('which records, rollouts and rewards influenced a version')
    .action(async (adapter: string, version: string) => {
      const path = `/v1/adapters/${segment(adapter)}/versions/${segment(version)}/lineage`;
      const reply = await api().get<CommandReply<'registry', 'lineage-of-version'>>(path, { limit: 1000 });
      print(reply, () =>
        [
          `version ${reply.version.version} of ${reply.version.adapterName}: ${reply.distinctRecords} records, ${reply.distinctRollouts} rollouts`,
          table(
            ['operation', 'record', 'rollouts', 'mean reward'],
            reply.influences.map((i) => [
              Number(i.opIndex),
              i.recordId,
              i.rollouts.length,
              meanReward(i.rollouts.map((r) => r.reward)),
            ]),
          ),
          ...(reply.next === null ? [] : [`(more: --json and ?after=${reply.next})`]),
        ].join('\n'),
      );
    });

  adapters
    .command('download <adapter>')
    .description('PEFT files of <adapter>@<alias or version>: they load in Hugging Face tools')
    .requiredOption('--out <folder>', 'where to put them')
    .action(async (ref: string, { out }: { out: string }) => {
      mkdirSync(out, { recursive: true });
      for (const file of PEFT_FILES) {
        writeFileSync(join(out, file), await api().download(`/v1/adapters/${segment(ref)}/peft/${file}`));
      }
      print({ folder: out, files: PEFT_FILES }, () => `wrote ${PEFT_FILES.join(' and ')} to ${out}`);
    });

  adapters
    .command('alias <adapter> <alias> <version>')
    .description('move an alias to a version')
    .option('--reason <text>', 'kept with the move', '')
    .action(async (adapter: string, alias: string, version: string, { reason }: { reason: string }) => {
      const path = `/v1/adapters/${segment(adapter)}/aliases/${segment(alias)}`;
      const reply = await api().post<unknown>(path, { version: Number(version), reason });
      print(reply, () => `${adapter}@${alias} is version ${version}`);
    });
}

function meanReward(rewards: readonly (number | null)[]): string | null {
  const known = rewards.filter((r) => r !== null);
  return known.length === 0 ? null : (known.reduce((a, b) => a + b, 0) / known.length).toFixed(3);
}
