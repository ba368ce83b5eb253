export { createTestDatabase, withTestDatabase, type TestDatabase } from './test-database';
export { specificationOf, type DeciderUnderTest, type Fact } from './given-when-then';
export {
  aRecordReceived,
  aRolloutAnswer,
  aRolloutRequest,
  aStreamOfRecords,
  anAcceptance,
  anAdapterCreation,
  anApplication,
  newEvent,
} from './builders';
