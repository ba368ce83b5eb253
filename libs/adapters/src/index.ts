export { NO_ADAPTER, evolveAdapter, type Adapter, type OpenAdapter } from './adapter';
export { decideAcceptOperations, decideCreateAdapter, type Acceptance, type AdapterCreation } from './adapter.decider';
