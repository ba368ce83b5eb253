import type { Command } from 'commander';
import { isJson } from '../terminal/print';
import { loadPlatformConfig } from '../platform/platform.config';
import { readHead } from '../platform/read-head';
import { startPlatform, type Platform } from '../platform/start-platform';

export function addUpCommand(program: Command): void {
  program
    .command('up')
    .description('start the platform on this machine and leave it running')
    .action(async () => {
      const progress = (line: string) => process.stderr.write(`${line}\n`);
      const platform = await startPlatform(loadPlatformConfig(process.env), process.env, progress);
      await announce(platform);
      await untilSignal();
      process.stderr.write('stopping\n');
      await platform.stop();
      process.exit(0);
    });
}

/** What a person needs to use the platform, and the head to hold it to. */
export async function announce(platform: Platform): Promise<void> {
  const head = await readHead(platform);
  if (isJson()) {
    const { url, apiKeyFile, natsUrl } = platform;
    process.stdout.write(`${JSON.stringify({ url, apiKeyFile, dataDir: platform.folder.root, natsUrl, head })}\n`);
    return;
  }
  process.stdout.write(
    [
      `hotbed is running at ${platform.url}  (docs: ${platform.url}/docs)`,
      `API key   ${platform.apiKey}  (kept in ${platform.apiKeyFile})`,
      `data      ${platform.folder.root}`,
      `NATS      ${platform.natsUrl}`,
      `log head  ${head}  (hotbed audit verify --expect-head ${head})`,
      'Ctrl-C stops it; everything is kept.',
      '',
    ].join('\n'),
  );
}

/** Resolves at the first SIGINT or SIGTERM. */
export function untilSignal(): Promise<void> {
  return new Promise((resolve) => {
    process.once('SIGINT', () => resolve());
    process.once('SIGTERM', () => resolve());
  });
}
