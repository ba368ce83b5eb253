import {
  DomainError,
  InvalidInput,
  NotFound,
  aliasStreamId,
  newId,
  type CommandReply,
  type CommandRequest,
  type EventStore,
} from '#hotbed/contracts';
import { idOfNameOrId } from '../name-or-id';
import { LATEST } from './latest-alias';

/** Points an alias of an adapter at another of its versions. */
export class MoveAliasHandler {
  constructor(
    private readonly store: EventStore,
    private readonly now: () => number = Date.now,
  ) {}

  /** @throws NotFound adapter or version, InvalidInput for `latest` */
  async move(
    tenantId: string,
    { adapter, alias, version, reason }: CommandRequest<'orchestrator', 'move-alias'>,
    actor: string,
  ): Promise<CommandReply<'orchestrator', 'move-alias'>> {
    if (alias === LATEST) {
      throw new InvalidInput([
        { path: 'alias', message: 'latest follows the newest version by itself; choose another' },
      ]);
    }
    const adapterId = await idOfNameOrId(this.store, tenantId, 'adapter', adapter);
    if (adapterId === null) throw new NotFound('adapter', adapter, 'see hotbed adapters list');
    await this.assertVersion(adapterId, version);
    const moves = await this.store.readStream(aliasStreamId(adapterId, alias));
    const newest = moves.at(-1);
    const previous = newest?.type === 'AliasMoved' ? newest.payload.version : null;
    if (previous === version) return { adapterId, alias, version };
    await this.store.append({
      writes: [
        {
          streamId: aliasStreamId(adapterId, alias),
          expected: newest === undefined ? 'none' : newest.streamVersion,
          events: [
            {
              eventId: newId(),
              type: 'AliasMoved',
              tenantId,
              occurredAtMs: this.now(),
              actor,
              correlationId: adapterId,
              causationId: null,
              payload: { adapterId, alias, version, previousVersion: previous, reason: reason || 'requested' },
            },
          ],
        },
      ],
    });
    return { adapterId, alias, version };
  }

  /** Version n is the n-th move of `latest`. */
  private async assertVersion(adapterId: string, version: number): Promise<void> {
    const [move] = await this.store.readStream(aliasStreamId(adapterId, LATEST), {
      after: BigInt(version) - 1n,
      limit: 1,
    });
    if (move?.type === 'AliasMoved' && move.payload.version === version) return;
    const message = `adapter ${adapterId} has no version ${version}`;
    throw new DomainError('NotFound', 'version_not_found', `version: ${message}`, {
      fields: [{ path: 'version', message }],
      context: { adapterId, version },
    });
  }
}
