import { InvalidInput, idSchema, type CommandReply, type CommandRequest, type Transactions } from '#hotbed/contracts';
import type { Bases } from '#hotbed/models';
import { experimentRows } from './experiment-rows';
import { liveBases, toSummary } from './experiment-summary';

/** A summary is below 1 KiB; a reply carries 512. */
const MOST_IN_ONE_REPLY = 400;

/** A tenant's experiments, oldest first. */
export class ListExperimentsHandler {
  constructor(
    private readonly transactions: Transactions,
    private readonly bases: Bases,
    private readonly now: () => number = Date.now,
  ) {}

  async list(
    tenantId: string,
    { page }: CommandRequest<'orchestrator', 'list-experiments'>,
  ): Promise<CommandReply<'orchestrator', 'list-experiments'>> {
    if (page.after !== null && !idSchema.safeParse(page.after).success) {
      throw new InvalidInput([{ path: 'page.after', message: 'expected the `next` of the page before' }]);
    }
    const limit = Math.min(page.limit, MOST_IN_ONE_REPLY);
    const rows = await this.transactions.run((uow) => experimentRows.page(uow, tenantId, page.after, limit + 1));
    const live = await liveBases(this.bases);
    const experiments = rows.slice(0, limit).map((row) => toSummary(row, this.now(), live));
    return { experiments, next: rows.length > limit ? (experiments.at(-1)?.experimentId ?? null) : null };
  }
}
