import { aliasStreamId, newId, type AppendItem, type StoredEvent } from '#hotbed/contracts';

/** Alias that follows the newest version by itself. */
export const LATEST = 'latest';

/** Versions of an adapter are 1, 2, 3, ... and each moves `latest` once, so the move before is the version before. */
export function latestAliasMove(checkpointed: StoredEvent<'AdapterCheckpointed'>, nowMs: number): AppendItem {
  const { adapterId, version } = checkpointed.payload;
  return {
    writes: [
      {
        streamId: aliasStreamId(adapterId, LATEST),
        expected: 'any',
        events: [
          {
            eventId: newId(),
            type: 'AliasMoved',
            tenantId: checkpointed.tenantId,
            occurredAtMs: nowMs,
            actor: 'app:orchestrator',
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
