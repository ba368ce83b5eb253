import { idSchema, streamId, type EventStore, type EventType } from '#hotbed/contracts';

const CREATED = {
  adapter: 'AdapterCreated',
  'data-stream': 'DataStreamCreated',
  experiment: 'ExperimentCreated',
} as const satisfies Record<string, EventType>;

/** Id of what a tenant means by a name or an id; null = it has no such thing. A name comes first. */
export async function idOfNameOrId(
  store: EventStore,
  tenantId: string,
  kind: keyof typeof CREATED,
  ref: string,
): Promise<string | null> {
  const byName = await store.idOfName(tenantId, kind, ref);
  if (byName !== null) return byName;
  if (!idSchema.safeParse(ref).success) return null;
  const [created] = await store.readStream(streamId(kind, ref), { limit: 1 });
  return created?.type === CREATED[kind] && created.tenantId === tenantId ? ref : null;
}
