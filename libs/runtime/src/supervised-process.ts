import { spawn, type ChildProcess } from 'node:child_process';
import { closeSync, existsSync, mkdirSync, openSync, readFileSync, rmSync } from 'node:fs';
import { dirname } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { writePrivateFile } from './data-folder';

export interface SupervisedOptions {
  name: string;
  command: string;
  args: readonly string[];
  cwd: string;
  env?: NodeJS.ProcessEnv;
  /** OS user to run as (root only). */
  user?: { uid: number; gid: number };
  logFile: string;
  /** Remembers the process, so that the next start finds one that outlived its parent. */
  recordFile: string;
  stopSignal: NodeJS.Signals;
}

export interface SupervisedProcess {
  readonly pid: number;
  /** Set once the process has ended: exit code or signal. */
  exit(): string | null;
  signal(signal: NodeJS.Signals): void;
  /** Asks it to end, and kills it after `timeoutMs`. */
  stop(timeoutMs?: number): Promise<void>;
}

interface ProcessRecord {
  pid: number;
  startTime: string | null;
  parent: number;
  parentStartTime: string | null;
}

/**
 * Starts a service that ends with this process, however this process ends: a small shell reads from a pipe that only we
 * hold open, and signals the service at its end. It runs in its own process group, so that Ctrl-C reaches us alone and
 * the shutdown keeps its order. @throws Error when a living process uses the same data already
 */
export async function startSupervised(options: SupervisedOptions): Promise<SupervisedProcess> {
  await endOrphan(options);
  mkdirSync(dirname(options.logFile), { recursive: true });
  const log = openSync(options.logFile, 'a');
  const child = spawn(options.command, options.args, {
    cwd: options.cwd,
    env: options.env ?? process.env,
    stdio: ['ignore', log, log],
    detached: true,
    ...options.user,
  });
  closeSync(log);
  let exit: string | null = null;
  const exited = new Promise<void>((resolve) => {
    child.once('exit', (code, signal) => {
      exit = code === null ? `signal ${signal ?? 'unknown'}` : `exit code ${code}`;
      resolve();
    });
  });
  await new Promise<void>((resolve, reject) => {
    child.once('spawn', resolve);
    child.once('error', (error) => reject(new Error(`${options.name} cannot be started: ${error.message}`)));
  });
  const pid = child.pid;
  if (pid === undefined) throw new Error(`${options.name} has no process id`);
  child.unref();
  const guard = startGuard(pid, options.stopSignal);
  const record: ProcessRecord = {
    pid,
    startTime: startTimeOf(pid),
    parent: process.pid,
    parentStartTime: startTimeOf(process.pid),
  };
  writePrivateFile(options.recordFile, JSON.stringify(record));
  return {
    pid,
    exit: () => exit,
    signal: (signal) => void (exit === null && process.kill(pid, signal)),
    async stop(timeoutMs = 20_000) {
      child.ref();
      if (exit === null) process.kill(pid, options.stopSignal);
      const timer = setTimeout(() => void (exit === null && process.kill(pid, 'SIGKILL')), timeoutMs);
      await exited;
      clearTimeout(timer);
      guard.kill('SIGKILL');
      rmSync(options.recordFile, { force: true });
    },
  };
}

function startGuard(pid: number, signal: NodeJS.Signals): ChildProcess {
  const script = 'while read -r _; do :; done; kill -s "$1" "$2" 2>/dev/null';
  const guard = spawn('/bin/sh', ['-c', script, 'hotbed-guard', signal.replace('SIG', ''), String(pid)], {
    stdio: ['pipe', 'ignore', 'ignore'],
    detached: true,
  });
  guard.on('error', () => undefined);
  guard.unref();
  // The pipe must not keep our event loop alive; it closes when we end.
  (guard.stdin as unknown as { unref?: () => void } | null)?.unref?.();
  return guard;
}

/** Ends a service of ours whose parent died before its guard could act; refuses one whose parent lives. */
async function endOrphan(options: SupervisedOptions): Promise<void> {
  const record = readRecord(options.recordFile);
  if (record === null || !isSame(record.pid, record.startTime)) return;
  if (record.parent !== process.pid && isSame(record.parent, record.parentStartTime)) {
    throw new Error(
      `${options.name} is running already (process ${record.pid}, started by process ${record.parent}); ` +
        'stop that one first, or choose another HOTBED_DATA_DIR',
    );
  }
  if (record.parent === process.pid) throw new Error(`${options.name} was started twice on the same data folder`);
  process.kill(record.pid, options.stopSignal);
  const deadline = Date.now() + 15_000;
  while (isSame(record.pid, record.startTime)) {
    if (Date.now() > deadline) process.kill(record.pid, 'SIGKILL');
    await delay(20);
  }
}

function readRecord(path: string): ProcessRecord | null {
  if (!existsSync(path)) return null;
  try {
    return JSON.parse(readFileSync(path, 'utf8')) as ProcessRecord;
  } catch {
    return null;
  }
}

/** A process id alone may have been reused; its start time tells. */
function isSame(pid: number, startTime: string | null): boolean {
  return startTime !== null && startTimeOf(pid) === startTime;
}

/** Start time in clock ticks since boot (Linux), else the fact that the process exists; null when it does not. */
function startTimeOf(pid: number): string | null {
  try {
    const stat = readFileSync(`/proc/${pid}/stat`, 'utf8');
    const fields = stat.slice(stat.lastIndexOf(')') + 2).split(' ');
    // A zombie has ended; nobody has collected it yet.
    if (fields[0] === 'Z') return null;
    return `${bootId()}:${fields[19] ?? ''}`;
  } catch {
    if (existsSync('/proc/self/stat')) return null;
  }
  try {
    process.kill(pid, 0);
    return 'alive';
  } catch {
    return null;
  }
}

function bootId(): string {
  try {
    return readFileSync('/proc/sys/kernel/random/boot_id', 'utf8').trim();
  } catch {
    return '';
  }
}

/** The last lines of a log, for an error message. */
export function lastLines(path: string, count = 8): string {
  if (!existsSync(path)) return '';
  return readFileSync(path, 'utf8').trimEnd().split('\n').slice(-count).join('\n');
}
