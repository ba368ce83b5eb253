import type { Command } from 'commander';
import { createPool, FileBlobStore, PgConsumerLane, PgTransactions } from '#hotbed/event-store';
import { print } from '../terminal/print';
import { table } from '../terminal/table';
import { blobsHere, databaseHere } from './audit.command';

interface Place {
  database?: string;
}

/** For operators: lanes that a consumer has parked because one event could not be handled. */
export function addLanesCommands(program: Command): void {
  const lanes = program.command('lanes').description('event streams that a consumer has set aside');
  const option = ['--database <url>', 'database to use; default: the one of the platform here'] as const;

  lanes
    .command('list')
    .description('parked lanes: who cannot handle which event, and why')
    .option(...option)
    .action(async ({ database }: Place) => {
      const letters = await withLanes(database, (store) => store.deadLetters());
      const rows = letters.map((letter) => ({ ...letter, version: letter.version.toString() }));
      print(rows, () =>
        rows.length === 0
          ? 'no lane is parked'
          : table(
              ['consumer', 'stream id', 'version', 'attempts', 'parked at', 'error'],
              rows.map((r) => [r.consumer, r.streamId, r.version, r.attempts, r.parkedAt.toISOString(), r.error]),
            ),
      );
    });

  lanes
    .command('resume <consumer> <stream-id>')
    .description('after the cause is mended: let a parked lane go on where it stopped')
    .option(...option)
    .action(async (consumer: string, streamId: string, { database }: Place) => {
      await withLanes(database, (store) => store.resume(consumer, streamId));
      print({ consumer, streamId, resumed: true }, () => `${consumer} goes on with ${streamId}`);
    });
}

async function withLanes<T>(database: string | undefined, work: (lanes: PgConsumerLane) => Promise<T>): Promise<T> {
  const pool = createPool(database ?? databaseHere(), { applicationName: 'hotbed-lanes', max: 1 });
  try {
    // No event is read here, so no blob is either.
    const blobs = new FileBlobStore({ root: blobsHere() });
    return await work(new PgConsumerLane(new PgTransactions(pool, blobs), blobs));
  } finally {
    await pool.end();
  }
}
