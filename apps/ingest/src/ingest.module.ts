import { Module, type DynamicModule } from '@nestjs/common';
import type { BlobStore, EventStore, Transactions } from '#hotbed/contracts';
import {
  createPool,
  FileBlobStore,
  PgConsumerLane,
  PgEventStore,
  PgTransactions,
  ProjectionRunner,
  Queries,
  type LogListener,
} from '#hotbed/event-store';
import { LaneConsumer, RpcServer, type Broker } from '#hotbed/messaging';
import type { AppHost } from '#hotbed/runtime';
import { CreateDataStreamHandler } from './data-stream/create-data-stream.handler';
import { dataStreamProjection } from './data-stream/data-stream.projection';
import { DataStreamReadModel } from './data-stream/data-stream.read-model';
import { handleIngestCommands } from './ingest.commands';
import type { IngestConfig } from './ingest.config';
import { IngestLifecycle } from './ingest.lifecycle';
import { RecordConsumers } from './record/record.consumers';
import { TakeRecordsHandler } from './record/take-records.handler';
import { countRecords, followExperiments } from './trigger/trigger.consumer';
import { TriggerTrainingHandler } from './trigger/trigger-training.handler';

type Pool = ReturnType<typeof createPool>;

const POOL = Symbol('pool');
const BLOBS = Symbol('blobs');
const EVENTS = Symbol('events');
const TRANSACTIONS = Symbol('transactions');
const LANES = Symbol('lanes');

export interface IngestConnections {
  listener: LogListener;
  broker: Broker;
}

@Module({})
export class IngestModule {
  static register(config: IngestConfig, { listener, broker }: IngestConnections, host: AppHost): DynamicModule {
    const logger = host.logger.child({ app: 'ingest' });
    const onProblem = (line: string, error?: unknown) => logger.warn({ err: error }, line);
    return {
      module: IngestModule,
      providers: [
        { provide: BLOBS, useFactory: () => new FileBlobStore({ root: config.blobFolder }) },
        { provide: POOL, useFactory: () => createPool(config.databaseUrl, { applicationName: 'hotbed-ingest' }) },
        {
          provide: EVENTS,
          useFactory: (pool: Pool, blobs: BlobStore) => new PgEventStore(pool, blobs),
          inject: [POOL, BLOBS],
        },
        {
          provide: TRANSACTIONS,
          useFactory: (pool: Pool, blobs: BlobStore) => new PgTransactions(pool, blobs),
          inject: [POOL, BLOBS],
        },
        {
          provide: DataStreamReadModel,
          useFactory: (pool: Pool) => new DataStreamReadModel(new Queries(pool)),
          inject: [POOL],
        },
        {
          provide: CreateDataStreamHandler,
          useFactory: (events: EventStore) => new CreateDataStreamHandler(events),
          inject: [EVENTS],
        },
        {
          provide: TakeRecordsHandler,
          useFactory: (events: EventStore, transactions: Transactions) => new TakeRecordsHandler(events, transactions),
          inject: [EVENTS, TRANSACTIONS],
        },
        {
          provide: TriggerTrainingHandler,
          useFactory: (events: EventStore, transactions: Transactions) =>
            new TriggerTrainingHandler(events, transactions),
          inject: [EVENTS, TRANSACTIONS],
        },
        {
          provide: ProjectionRunner,
          useFactory: (store: EventStore, transactions: Transactions) =>
            new ProjectionRunner({
              store,
              transactions,
              listener,
              projection: dataStreamProjection,
              onError: (error) => onProblem('data stream projection failed; trying again', error),
            }),
          inject: [EVENTS, TRANSACTIONS],
        },
        {
          provide: RpcServer,
          useFactory: (
            events: EventStore,
            streams: DataStreamReadModel,
            create: CreateDataStreamHandler,
            take: TakeRecordsHandler,
            trigger: TriggerTrainingHandler,
          ) =>
            handleIngestCommands(
              new RpcServer(broker, 'ingest', { onBug: (command, error) => logger.error({ err: error }, command) }),
              { events, streams, create, take, trigger },
            ),
          inject: [EVENTS, DataStreamReadModel, CreateDataStreamHandler, TakeRecordsHandler, TriggerTrainingHandler],
        },
        {
          provide: RecordConsumers,
          useFactory: (events: EventStore, take: TakeRecordsHandler) =>
            new RecordConsumers({
              broker,
              events,
              listener,
              take,
              maxBytes: config.ingestStreamBytes,
              onProblem,
            }),
          inject: [EVENTS, TakeRecordsHandler],
        },
        {
          provide: LANES,
          useFactory: (transactions: Transactions, blobs: BlobStore) => {
            const lane = new PgConsumerLane(transactions, blobs);
            const ports = { lane, deadLetter: lane, onProblem };
            return [
              new LaneConsumer(
                broker,
                {
                  name: 'ingest-experiments',
                  category: 'experiment',
                  types: ['ExperimentCreated', 'ExperimentCompleted', 'ExperimentFailed', 'ExperimentCancelled'],
                  handle: followExperiments(),
                },
                ports,
              ),
              new LaneConsumer(
                broker,
                {
                  name: 'ingest-records',
                  category: 'data-stream',
                  types: ['RecordReceived'],
                  handle: countRecords(),
                },
                ports,
              ),
            ];
          },
          inject: [TRANSACTIONS, BLOBS],
        },
        {
          provide: IngestLifecycle,
          useFactory: (
            pool: Pool,
            rpc: RpcServer,
            records: RecordConsumers,
            lanes: LaneConsumer[],
            projection: ProjectionRunner,
            trigger: TriggerTrainingHandler,
          ) =>
            new IngestLifecycle(
              { pool, broker, listener, rpc, records, lanes, projection, trigger, onProblem },
              host.health,
            ),
          inject: [POOL, RpcServer, RecordConsumers, LANES, ProjectionRunner, TriggerTrainingHandler],
        },
      ],
    };
  }
}
