export { Broker, type BrokerOptions } from './broker';
export {
  BrokerUsers,
  SERVICE_USERS,
  producerName,
  producerUser,
  readerName,
  readerUser,
  serviceUser,
  usersConfig,
  type BrokerUser,
  type ServiceUser,
} from './broker-users';
export {
  EVENT_STREAMS,
  EVENT_STREAM_LIMITS,
  INGEST_STREAM_BYTES,
  categoriesOf,
  ensureIngestStream,
  type StreamLimits,
} from './event-streams';
export { ackDecision, retryDelayMs, type AckDecision } from './ack-decision';
export { noObserver, type ConsumerObserver, type MessageOutcome } from './consumer-observer';
export { LaneConsumer, type LaneConsumerDefinition, type LaneConsumerPorts } from './lane-consumer';
export { lingeringLane } from './lingering-lane';
export {
  IngestConsumer,
  type IngestConsumerDefinition,
  type IngestConsumerPorts,
  type IngestMessage,
} from './ingest-consumer';
export { IngestPublisher, type PublishedRecord } from './ingest-publisher';
export { Doorbell, type DoorbellDefinition, type Ring } from './doorbell';
export { EventStreamWriter, type EventStreamState, type PublishOutcome } from './event-writer';
export { fittingRows } from './fitting-rows';
export { RPC_LIMIT_BYTES, RpcServer, type RpcContext, type RpcServerOptions } from './rpc-server';
export { RpcClient, type RequestOptions } from './rpc-client';
