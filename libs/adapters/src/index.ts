export { NO_ADAPTER, evolveAdapter, type Adapter, type OpenAdapter } from './adapter';
export {
  decideAcceptOperations,
  decideCreateAdapter,
  type AcceptingAdapter,
  type Acceptance,
  type AdapterCreation,
} from './adapter.decider';
export { lossProblems } from './operation-problems';
