/** A prompt of a rollout request that has no answer yet: a row of the work list. */
export interface OpenRequest {
  requestId: string;
  promptIndex: number;
  streamId: string;
  /** Stream version of RolloutsRequested. */
  requestVersion: bigint;
  tenantId: string;
  /** null = the plain base. */
  adapterId: string | null;
  opIndex: bigint | null;
}
