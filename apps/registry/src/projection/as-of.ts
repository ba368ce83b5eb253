import { DomainError, type EventStore } from '#hotbed/contracts';

/** How far the registry's tables are in the log. */
export interface ProjectionPosition {
  position(): Promise<bigint>;
}

export interface AsOf {
  asOfPosition: string;
  head: { position: string; hash: string };
}

const POLL_MS = 10;

/** Stamps answers with the position they are true at, and waits for the tables to reach a position. */
export class AsOfStamp {
  constructor(
    private readonly events: EventStore,
    private readonly projection: ProjectionPosition,
  ) {}

  /** Read before the rows: an answer may be newer than its stamp, never older. */
  async now(): Promise<AsOf> {
    const [asOfPosition, head] = [await this.projection.position(), await this.events.head()];
    return { asOfPosition: asOfPosition.toString(), head: { position: head.position.toString(), hash: head.hash } };
  }

  /** So that who wrote may read what it wrote. @throws Unavailable `projection_behind` */
  async reach(position: bigint, timeoutMs = 10_000): Promise<void> {
    const deadline = Date.now() + timeoutMs;
    while ((await this.projection.position()) < position) {
      if (Date.now() > deadline) {
        throw new DomainError(
          'Unavailable',
          'projection_behind',
          'the registry is catching up with the log; try again',
          {
            retryAfterMs: 1_000,
          },
        );
      }
      await new Promise((resolve) => setTimeout(resolve, POLL_MS));
    }
  }
}
