import { spawn, type ChildProcess } from 'node:child_process';
import { existsSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { resolve } from 'node:path';

export const ROOT = resolve(__dirname, '..', '..');
const MAIN = resolve(ROOT, 'dist', 'apps', 'cli', 'src', 'main.js');

export interface CommandResult {
  code: number | null;
  stdout: string;
  stderr: string;
}

/** Settings of whoever runs the tests must not reach the platform under test; where its programs are must. */
function environment(variables: Record<string, string>): NodeJS.ProcessEnv {
  const inherited = Object.entries(process.env).filter(
    ([name]) => !name.startsWith('HOTBED_') || name === 'HOTBED_NATS_SERVER',
  );
  return { ...Object.fromEntries(inherited), ...variables };
}

/** Starts the compiled `hotbed` command. @param variables HOTBED_* */
export function spawnHotbed(args: readonly string[], variables: Record<string, string>): ChildProcess {
  if (!existsSync(MAIN)) throw new Error(`${MAIN} is missing; run \`npm run build\` first`);
  return spawn(process.execPath, ['--enable-source-maps', MAIN, ...args], {
    // Nothing may depend on where a person stands.
    cwd: tmpdir(),
    env: environment(variables),
    stdio: ['ignore', 'pipe', 'pipe'],
  });
}

/** Runs the `hotbed` command to its end. */
export function runHotbed(
  args: readonly string[],
  variables: Record<string, string> = {},
  deadlineMs = 120_000,
): Promise<CommandResult> {
  const child = spawnHotbed(args, variables);
  let [stdout, stderr] = ['', ''];
  child.stdout?.setEncoding('utf8').on('data', (text: string) => (stdout += text));
  child.stderr?.setEncoding('utf8').on('data', (text: string) => (stderr += text));
  return new Promise((done, reject) => {
    const timer = setTimeout(() => {
      child.kill('SIGKILL');
      reject(new Error(`hotbed ${args.join(' ')} did not end within ${deadlineMs} ms: ${stdout}${stderr}`));
    }, deadlineMs);
    child.once('error', reject);
    child.once('close', (code) => {
      clearTimeout(timer);
      done({ code, stdout, stderr });
    });
  });
}
