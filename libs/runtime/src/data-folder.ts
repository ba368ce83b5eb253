import { chmodSync, existsSync, mkdirSync, readFileSync, renameSync, writeFileSync } from 'node:fs';
import { randomBytes } from 'node:crypto';
import { dirname, join, resolve } from 'node:path';

/** Where a platform on one machine keeps its things. Everything in it is its owner's alone. */
export interface DataFolder {
  root: string;
  postgres: string;
  nats: string;
  blobs: string;
  secrets: string;
  logs: string;
  /** Programs fetched for this folder, for example nats-server. */
  tools: string;
}

/** @param root HOTBED_DATA_DIR; default `.hotbed` below the working directory. Touches no disk. */
export function dataFolderOf(root?: string): DataFolder {
  const absolute = resolve(root ?? '.hotbed');
  return {
    root: absolute,
    postgres: join(absolute, 'postgres'),
    nats: join(absolute, 'nats'),
    blobs: join(absolute, 'blobs'),
    secrets: join(absolute, 'secrets'),
    logs: join(absolute, 'logs'),
    tools: join(absolute, 'tools'),
  };
}

/** As `dataFolderOf`, created where missing. */
export function openDataFolder(root?: string): DataFolder {
  const folder = dataFolderOf(root);
  mkdirSync(folder.root, { recursive: true, mode: 0o711 });
  // Root's PostgreSQL runs as another user, who must be able to pass through (never to list) the folder.
  if (process.getuid?.() === 0) chmodSync(folder.root, 0o711);
  for (const path of [folder.secrets, folder.blobs, folder.nats, folder.logs, folder.tools]) {
    mkdirSync(path, { recursive: true, mode: 0o700 });
  }
  return folder;
}

/** A random secret that is made once and kept in a file of mode 600. @returns 43 URL-safe characters. */
export function loadOrCreateSecret(path: string): string {
  if (existsSync(path)) return readFileSync(path, 'utf8').trim();
  const secret = randomBytes(32).toString('base64url');
  writePrivateFile(path, `${secret}\n`);
  return secret;
}

/** Replaces a file as a whole (a reader sees the old or the new content), readable by its owner alone. */
export function writePrivateFile(path: string, content: string): void {
  mkdirSync(dirname(path), { recursive: true, mode: 0o700 });
  const temporary = `${path}.${process.pid}.tmp`;
  writeFileSync(temporary, content, { mode: 0o600, flush: true });
  chmodSync(temporary, 0o600);
  renameSync(temporary, path);
}
