import { existsSync, readFileSync } from 'node:fs';
import type { Command } from 'commander';
import { DomainError, InvalidInput, type CommandReply } from '#hotbed/contracts';
import { blobFolder, parseSeenHead, verifyDatabase, type SeenHead } from '#hotbed/event-store';
import { loadConfig } from '#hotbed/runtime';
import { z } from 'zod';
import { segment, type ApiClient } from '../api/api-client';
import { platformFilesHere } from '../platform/platform-files';
import { rederive } from '../platform/rederive';
import { print } from '../terminal/print';

export function addAuditCommands(program: Command, api: () => ApiClient): void {
  const audit = program.command('audit').description('proofs that need no trust in the platform');
  addRederive(audit, api);

  audit
    .command('verify')
    .description('check the hash chain of the log, row by row')
    .option(
      '--expect-head <position:hash>',
      'a head that was seen before: a log that was cut or rewritten since is named',
    )
    .option('--database <url>', 'database to read; default: the one of the platform here')
    .option('--blobs <folder>', 'blob folder: large payloads are checked, too; default: the one of the platform here')
    .action(async ({ expectHead, database, blobs }: { expectHead?: string; database?: string; blobs?: string }) => {
      const seen = expectHead === undefined ? undefined : headOption(expectHead);
      const result = await verifyDatabase(database ?? databaseHere(), {
        ...(seen === undefined ? {} : { expectHead: seen }),
        ...(blobs === undefined && database !== undefined ? {} : { readBlob: blobFolder(blobs ?? blobsHere()) }),
      });
      if (result.ok) {
        const head = `${result.head.position}:${result.head.hash}`;
        print(
          { ok: true, events: result.head.position.toString(), head },
          () => `the chain of ${result.head.position} events verifies\nhead ${head}`,
        );
        return;
      }
      const { kind, position, message } = result.problem;
      print(
        { ok: false, kind, position: position.toString(), message },
        () => `${kind} at position ${position}: ${message}`,
      );
      process.exitCode = 1;
    });
}

/** `<adapter> <version>` -> the version folded again in a process and an engine of its own. */
function addRederive(audit: Command, api: () => ApiClient): void {
  audit
    .command('rederive <adapter> <version>')
    .description('fold a version again from its operations, without any version file, and compare digests')
    .action(async (adapter: string, version: string) => {
      const reply = await api().get<CommandReply<'registry', 'resolve'>>(`/v1/adapters/${segment(adapter)}/resolve`, {
        ref: version,
      });
      const { dataDir } = platformFilesHere();
      const result = await rederive(reply.version.adapterId, reply.version.version, {
        databaseUrl: databaseHere(),
        blobFolder: blobsHere(),
        dataDir,
      });
      print(result, () =>
        [
          `version ${result.version} of ${adapter}, folded from ${result.operations} operations: ${result.equal ? 'equal' : 'DIFFERENT'}`,
          `recorded  state ${result.recorded.stateDigest}  weights ${result.recorded.weightsDigest}`,
          `derived   state ${result.derived.stateDigest}  weights ${result.derived.weightsDigest}`,
        ].join('\n'),
      );
      if (!result.equal) process.exitCode = 1;
    });
}

function headOption(text: string): SeenHead {
  try {
    return parseSeenHead(text);
  } catch (error) {
    throw new InvalidInput([
      { path: '--expect-head', message: error instanceof Error ? error.message : String(error) },
    ]);
  }
}

/** The blob folder of the platform here. */
export function blobsHere(): string {
  return platformFilesHere().blobs;
}

/** HOTBED_DATABASE_URL, else what `hotbed up` wrote for its embedded server. */
export function databaseHere(): string {
  const { url } = loadConfig({ HOTBED_DATABASE_URL: z.string().optional() }, (values) => ({
    url: values.HOTBED_DATABASE_URL,
  }));
  if (url !== undefined) return url;
  const files = platformFilesHere();
  if (existsSync(files.databaseUrl)) return readFileSync(files.databaseUrl, 'utf8').trim();
  throw new DomainError(
    'IllegalState',
    'no_platform',
    `no platform in ${files.dataDir}; start one with npm start, or give --database`,
  );
}
