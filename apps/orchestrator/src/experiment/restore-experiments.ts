import type { EventStore, Transactions } from '#hotbed/contracts';
import { experimentRows } from './experiment-rows';
import type { ExperimentProcess } from './experiment-process';
import { experimentIds } from './rebuild-experiment';

/**
 * Folds every experiment again where the table was emptied, and does what is due. Single rows that are missing are
 * folded when they are first needed.
 * @returns how many were restored
 */
export async function restoreExperiments(
  store: EventStore,
  transactions: Transactions,
  process: ExperimentProcess,
): Promise<number> {
  if (!(await transactions.run((uow) => experimentRows.isEmpty(uow)))) return 0;
  let restored = 0;
  for await (const experimentId of experimentIds(store)) {
    await transactions.run(async (uow) => {
      const row = await process.lock(uow, experimentId);
      if (row === null) return;
      const { item } = await process.advance(uow, row, { causationId: null });
      if (item !== null) await uow.append([item]);
    });
    restored += 1;
  }
  return restored;
}
