import { NotFound, idSchema, type EventStore } from '#hotbed/contracts';

/** Id of an experiment of the tenant, by name or id. Whether an id is the tenant's is checked where its row is read. */
export async function experimentIdOf(store: EventStore, tenantId: string, ref: string): Promise<string> {
  const byName = await store.idOfName(tenantId, 'experiment', ref);
  if (byName !== null) return byName;
  if (idSchema.safeParse(ref).success) return ref;
  throw noExperiment(ref);
}

export function noExperiment(ref: string): NotFound {
  return new NotFound('experiment', ref, 'see hotbed experiments list');
}
