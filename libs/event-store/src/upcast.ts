import { DomainError, type EventType } from '#hotbed/contracts';

/** Pure step from a payload of version n to one of n + 1. */
export type Upcaster = (payload: unknown) => unknown;

/**
 * Steps by type and by the version that they start from. Additive change needs none; a change of meaning raises the
 * type's schemaVersion and adds its step here.
 */
const UPCASTERS: Partial<Record<EventType, Readonly<Record<number, Upcaster>>>> = {};

export function upcast(
  type: EventType,
  from: number,
  to: number,
  payload: unknown,
  upcasters: typeof UPCASTERS = UPCASTERS,
): unknown {
  let current = payload;
  for (let version = from; version < to; version++) {
    const step = upcasters[type]?.[version];
    if (step === undefined) {
      throw new DomainError('IllegalState', 'missing_upcaster', `no upcaster for ${type} from version ${version}`, {
        context: { type, version },
      });
    }
    current = step(current);
  }
  return current;
}
