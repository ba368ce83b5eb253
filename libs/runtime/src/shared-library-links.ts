import { existsSync, readFileSync, symlinkSync } from 'node:fs';
import { dirname, join, relative } from 'node:path';

/**
 * npm packages cannot hold links, so the PostgreSQL package lists them in `pg-symlinks.json` (paths begin with
 * `native/`) and makes them in its install script.
 * @param binaries the package's `native` folder or a copy of it
 * @returns whether all links exist (after making them with `make`)
 */
export function linkSharedLibraries(binaries: string, mode: 'check' | 'make'): boolean {
  const list = join(binaries, 'pg-symlinks.json');
  if (!existsSync(list)) return true;
  const links = JSON.parse(readFileSync(list, 'utf8')) as { source: string; target: string }[];
  return links.every(({ source, target }) => {
    const path = join(binaries, target.replace(/^native\//, ''));
    if (existsSync(path)) return true;
    if (mode === 'check') return false;
    symlinkSync(relative(dirname(target), source), path);
    return true;
  });
}
