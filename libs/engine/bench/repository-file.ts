import { existsSync } from 'node:fs';
import { dirname, join } from 'node:path';

/** A file of the repository that no build copies; it stands above this file both as source and as build output. */
export function repositoryFile(...parts: string[]): string {
  let folder = __dirname;
  while (!existsSync(join(folder, ...parts))) {
    const parent = dirname(folder);
    if (parent === folder) throw new Error(`${join(...parts)} is missing`);
    folder = parent;
  }
  return join(folder, ...parts);
}
