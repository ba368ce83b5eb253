import { NotFound, idSchema, type EventStore } from '#hotbed/contracts';

/** @throws NotFound when a name or id is no data stream of the tenant */
export async function dataStreamIdOf(events: EventStore, tenantId: string, ref: string): Promise<string> {
  const byName = await events.idOfName(tenantId, 'data-stream', ref);
  if (byName !== null) return byName;
  if (await ownsDataStream(events, tenantId, ref)) return ref;
  throw new NotFound('data stream', ref, 'create it first: hotbed streams create <name>');
}

export async function ownsDataStream(events: EventStore, tenantId: string, dataStreamId: string): Promise<boolean> {
  if (!idSchema.safeParse(dataStreamId).success) return false;
  const [created] = await events.readStream(`data-stream:${dataStreamId}`, { limit: 1 });
  return created?.type === 'DataStreamCreated' && created.tenantId === tenantId;
}
