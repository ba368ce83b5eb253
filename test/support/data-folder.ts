import { existsSync, mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

export function aDataFolder(): string {
  return mkdtempSync(join(tmpdir(), 'hotbed-e2e-'));
}

/** Also the database's files where root's server had to keep them elsewhere (a pointer file says where). */
export function removeDataFolder(folder: string): void {
  const pointer = join(folder, 'postgres', 'location');
  const elsewhere = existsSync(pointer) ? readFileSync(pointer, 'utf8').trim() : '';
  if (/\/hotbed\/[0-9a-f]{16}$/.test(elsewhere)) rmSync(elsewhere, { recursive: true, force: true });
  rmSync(folder, { recursive: true, force: true });
}
