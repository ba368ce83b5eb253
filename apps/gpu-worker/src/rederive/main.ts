import 'reflect-metadata';
import { DomainError, idSchema, parseInput } from '#hotbed/contracts';
import { createPool, FileBlobStore, PgEventStore } from '#hotbed/event-store';
import { readHistory } from '#hotbed/fold';
import { ConfigError } from '#hotbed/runtime';
import { z } from 'zod';
import { loadBaseModelToVerify } from '../engine/base-model';
import { loadRederiveConfig } from '../gpu-worker.config';
import { rederiveVersion } from './rederive';

const argumentsSchema = z.object({ adapterId: idSchema, version: z.coerce.number().int().positive() });

/** `rederive/main.js <adapter id> <version>`: one JSON document on standard output; exit 1 where the bytes differ. */
async function main(): Promise<number> {
  const [, , adapterId, version] = process.argv;
  const wanted = parseInput(argumentsSchema, { adapterId, version }, 'argument');
  const config = loadRederiveConfig(process.env);
  const pool = createPool(config.databaseUrl, { applicationName: 'hotbed-rederive', max: 2 });
  try {
    const events = new PgEventStore(pool, new FileBlobStore({ root: config.blobFolder }));
    const history = await readHistory(events, wanted.adapterId);
    const engine = await loadBaseModelToVerify(config.engine, history.created.numericsId);
    try {
      const result = await rederiveVersion(engine, events, history, wanted.version);
      process.stdout.write(`${JSON.stringify(result)}\n`);
      return result.equal ? 0 : 1;
    } finally {
      await engine.dispose();
    }
  } finally {
    await pool.end();
  }
}

main().then(
  (code) => process.exit(code),
  (error: unknown) => {
    const expected = error instanceof DomainError || error instanceof ConfigError;
    process.stderr.write(`${error instanceof Error ? (expected ? error.message : error.stack) : String(error)}\n`);
    process.exit(1);
  },
);
