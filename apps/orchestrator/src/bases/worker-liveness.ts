import type { Transactions } from '#hotbed/contracts';

/**
 * Whether a worker lives: while it does, it holds the session advisory lock whose key is its identity. Asked for shared
 * and for a moment, as other claimers ask, so that nobody takes us for the owner.
 */
export function workerLiveness(transactions: Transactions): (identity: bigint) => Promise<boolean> {
  return (identity) =>
    transactions.run(async (uow) => {
      const [row] = await uow.query<{ free: boolean }>('SELECT pg_try_advisory_xact_lock_shared($1) AS free', [
        identity,
      ]);
      return row?.free === false;
    });
}
