import { readdir, realpath, stat } from 'node:fs/promises';
import { isAbsolute, join, relative } from 'node:path';

/** Name under which a verifier file is given by path. */
export const FILE_VERIFIER = 'file';

const EXTENSION = '.mjs';

/** Absolute, because the processes that check and run it have working directories of their own. */
export async function isVerifierFile(path: string): Promise<boolean> {
  if (!isAbsolute(path) || !path.endsWith(EXTENSION)) return false;
  return stat(path).then(
    (found) => found.isFile(),
    () => false,
  );
}

/** Whether an existing file lies in the folder, symbolic links followed. */
export async function liesIn(folder: string, path: string): Promise<boolean> {
  const [root, file] = await Promise.all([folder, path].map((place) => realpath(place).catch(() => null)));
  if (!root || !file) return false;
  const way = relative(root, file);
  return way !== '' && !way.startsWith('..') && !isAbsolute(way);
}

/** `<folder>/<name>.mjs`, or null where the name could leave the folder. */
export function ownVerifierPath(folder: string | null, name: string): string | null {
  return folder !== null && /^[a-z0-9][a-z0-9._-]*$/.test(name) ? join(folder, `${name}${EXTENSION}`) : null;
}

export async function ownVerifierNames(folder: string | null): Promise<string[]> {
  if (folder === null) return [];
  const files = await readdir(folder).catch(() => []);
  return files
    .filter((file) => file.endsWith(EXTENSION))
    .map((file) => file.slice(0, -EXTENSION.length))
    .sort();
}
