import type { BlobStore, EventStore } from '#hotbed/contracts';
import type { Engine } from '#hotbed/engine';
import type { Logger } from '#hotbed/runtime';
import type { Failpoints } from '../failpoint/failpoints';
import type { PolicyStates } from './policy-states';

/** What every adapter on a worker shares. */
export interface AdapterTools {
  workerId: string;
  engine: Engine;
  events: EventStore;
  blobs: BlobStore;
  policies: PolicyStates;
  failpoints: Failpoints;
  logger: Logger;
}
