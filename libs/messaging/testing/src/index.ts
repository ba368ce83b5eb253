export { startWithoutBroker } from './start-without-broker';
export { startTestBroker, withTestBroker, type TestBroker } from './test-broker';
export { until } from './until';
