import {
  DomainError,
  InvalidInput,
  NotFound,
  type AdapterHeadChange,
  type NameClaim,
  type Operation,
  type PayloadOf,
} from '#hotbed/contracts';
import type { Adapter, OpenAdapter } from './adapter';
import { operationProblems } from './operation-problems';

/** What goes into one append item when an adapter is created. */
export interface AdapterCreation {
  payload: PayloadOf<'AdapterCreated'>;
  head: AdapterHeadChange;
  name: NameClaim;
}

/** What goes into one append item when operations are accepted. */
export interface Acceptance {
  payloads: PayloadOf<'OperationAccepted'>[];
  head: AdapterHeadChange;
}

/** What accepting needs of an adapter: a process that tracks it in a state of its own passes no more. */
export type AcceptingAdapter =
  { status: 'absent' } | Pick<OpenAdapter, 'status' | 'experimentId' | 'numericsId' | 'nextOpIndex'>;

/** @throws DomainError Conflict `adapter_exists` */
export function decideCreateAdapter(
  adapter: Adapter,
  tenantId: string,
  payload: PayloadOf<'AdapterCreated'>,
): AdapterCreation {
  if (adapter.status !== 'absent') {
    throw new DomainError('Conflict', 'adapter_exists', `adapter ${payload.adapterId} exists already`);
  }
  return {
    payload,
    head: { change: 'create', adapterId: payload.adapterId },
    name: { tenantId, kind: 'adapter', name: payload.name, id: payload.adapterId },
  };
}

/**
 * Accepts operations in their order, with consecutive operation indices from the adapter's next one. An adapter that
 * an experiment owns takes operations of that experiment only: two writers would make its state a race.
 * @throws NotFound, InvalidInput naming the field, DomainError IllegalState `adapter_owned`
 */
export function decideAcceptOperations(
  adapter: AcceptingAdapter,
  adapterId: string,
  operations: readonly Operation[],
  origin: PayloadOf<'OperationAccepted'>['origin'],
): Acceptance {
  if (adapter.status === 'absent') throw new NotFound('adapter', adapterId);
  const owner = origin.kind === 'experiment' ? origin.experimentId : null;
  if (owner !== adapter.experimentId) {
    throw new DomainError(
      'IllegalState',
      'adapter_owned',
      adapter.experimentId === null
        ? `adapter ${adapterId} belongs to no experiment; its operations come from clients`
        : `adapter ${adapterId} is trained by experiment ${adapter.experimentId}; create another adapter`,
    );
  }
  const problems =
    operations.length === 0
      ? [{ path: 'operations', message: 'expected at least one operation' }]
      : operations.flatMap((operation, i) => operationProblems(operation, `operations[${i}]`));
  if (problems.length > 0) throw new InvalidInput(problems);
  const first = adapter.nextOpIndex;
  return {
    payloads: operations.map((operation, i) => ({
      adapterId,
      opIndex: (first + BigInt(i)).toString(),
      operation,
      numericsId: adapter.numericsId,
      origin,
    })),
    head: { change: 'accept', adapterId, first, last: first + BigInt(operations.length) - 1n },
  };
}
