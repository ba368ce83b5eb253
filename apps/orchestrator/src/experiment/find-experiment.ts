import { NotFound, type EventStore } from '#hotbed/contracts';
import { idOfNameOrId } from '../name-or-id';

/** Id of an experiment of the tenant, by name or id. @throws NotFound */
export async function experimentIdOf(store: EventStore, tenantId: string, ref: string): Promise<string> {
  const experimentId = await idOfNameOrId(store, tenantId, 'experiment', ref);
  if (experimentId === null) throw noExperiment(ref);
  return experimentId;
}

export function noExperiment(ref: string): NotFound {
  return new NotFound('experiment', ref, 'see hotbed experiments list');
}
