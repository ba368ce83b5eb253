import { aliasStreamId, newId, type AppendItem, type EventStore, type StoredEvent } from '#hotbed/contracts';
import { ORCHESTRATOR_ACTOR } from '../orchestrator.actor';

/** Alias that follows the newest version by itself. */
export const LATEST = 'latest';

/**
 * Versions of an adapter are 1, 2, 3, ... and each moves `latest` once: version n is the n-th move, and the move before
 * is the version before. @returns null where this version has moved it already
 */
export async function latestAliasMove(
  store: EventStore,
  checkpointed: StoredEvent<'AdapterCheckpointed'>,
  nowMs: number,
): Promise<AppendItem | null> {
  const { adapterId, version } = checkpointed.payload;
  const stream = aliasStreamId(adapterId, LATEST);
  const [moved] = await store.readStream(stream, { after: BigInt(version) - 1n, limit: 1 });
  if (moved !== undefined) return null;
  return {
    writes: [
      {
        streamId: stream,
        expected: 'any',
        events: [
          {
            eventId: newId(),
            type: 'AliasMoved',
            tenantId: checkpointed.tenantId,
            occurredAtMs: nowMs,
            actor: ORCHESTRATOR_ACTOR,
            correlationId: checkpointed.correlationId,
            causationId: checkpointed.eventId,
            payload: {
              adapterId,
              alias: LATEST,
              version,
              previousVersion: version === 1 ? null : version - 1,
              reason: 'newest version',
            },
          },
        ],
      },
    ],
  };
}
