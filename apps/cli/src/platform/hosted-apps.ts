import { createGatewayApp, type GatewayApp } from '../../../gateway/src/gateway.app';
import { createIngestApp } from '../../../ingest/src/ingest.app';
import { createOrchestratorApp } from '../../../orchestrator/src/orchestrator.app';
import { createRegistryApp } from '../../../registry/src/registry.app';
import { createRelayApp } from '../../../relay/src/relay.app';
import { createRewarderApp } from '../../../rewarder/src/rewarder.app';
import type { CreateApp } from '#hotbed/runtime';

/**
 * The control plane that `hotbed up` hosts in one process, in starting order (the relay makes the broker's streams). The
 * one place where an app names other apps; it hosts them and calls nothing else of theirs.
 */
export const CONTROL_PLANE: readonly CreateApp[] = [
  createRelayApp,
  createRegistryApp,
  createIngestApp,
  createRewarderApp,
  createOrchestratorApp,
  createGatewayApp,
];

export type { GatewayApp };
