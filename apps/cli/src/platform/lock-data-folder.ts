import { existsSync, readFileSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { DomainError } from '#hotbed/contracts';
import { writePrivateFile } from '#hotbed/runtime';

/** One platform per data folder. The file of a process that is gone is taken over. @throws IllegalState `already_running` */
export function lockDataFolder(root: string): { stop: () => void } {
  const file = join(root, 'platform.pid');
  if (existsSync(file)) {
    const [pid = '', startTime = ''] = readFileSync(file, 'utf8').trim().split(' ');
    if (startTime !== '' && startTimeOf(Number(pid)) === startTime) {
      throw new DomainError(
        'IllegalState',
        'already_running',
        `a hotbed platform (process ${pid}) runs in ${root} already; stop it or set HOTBED_DATA_DIR`,
      );
    }
  }
  writePrivateFile(file, `${process.pid} ${startTimeOf(process.pid) ?? ''}\n`);
  return { stop: () => rmSync(file, { force: true }) };
}

/** Ticks since boot at which a process began: with its id it names one process, even after ids are used again. */
function startTimeOf(pid: number): string | null {
  try {
    const stat = readFileSync(`/proc/${pid}/stat`, 'utf8');
    return stat.slice(stat.lastIndexOf(')') + 2).split(' ')[19] ?? null;
  } catch {
    return null;
  }
}
