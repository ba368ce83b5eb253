import { COMMANDS, type EventStore } from '#hotbed/contracts';
import type { RpcServer } from '#hotbed/messaging';
import type { CreateDataStreamHandler } from './data-stream/create-data-stream.handler';
import type { DataStreamReadModel } from './data-stream/data-stream.read-model';
import { INGEST_ACTOR } from './ingest.actor';
import { dataStreamIdOf } from './record/data-stream-id';
import type { TakeRecordsHandler } from './record/take-records.handler';
import type { TriggerTrainingHandler } from './trigger/trigger-training.handler';

interface Handlers {
  events: EventStore;
  streams: DataStreamReadModel;
  create: CreateDataStreamHandler;
  take: TakeRecordsHandler;
  trigger: TriggerTrainingHandler;
}

const { ingest } = COMMANDS;

/** Every command of ingest and who handles it. */
export function handleIngestCommands(rpc: RpcServer, { events, streams, create, take, trigger }: Handlers): RpcServer {
  return rpc
    .handle('create-data-stream', ingest['create-data-stream'].request, (request, { tenantId, actor }) =>
      create.create(tenantId, request, actor ?? INGEST_ACTOR),
    )
    .handle('get-data-stream', ingest['get-data-stream'].request, async ({ dataStream }, { tenantId }) =>
      streams.get(tenantId, await dataStreamIdOf(events, tenantId, dataStream)),
    )
    .handle('list-data-streams', ingest['list-data-streams'].request, async ({ page }, { tenantId }) => {
      const { rows, next } = await streams.list(tenantId, page);
      return { dataStreams: rows, next };
    })
    .handle(
      'append-records',
      ingest['append-records'].request,
      async ({ dataStream, records }, { tenantId, actor }) => ({
        records: await take.takeAll(
          tenantId,
          await dataStreamIdOf(events, tenantId, dataStream),
          records,
          actor ?? INGEST_ACTOR,
        ),
      }),
    )
    .handle('list-records', ingest['list-records'].request, async ({ dataStream, page }, { tenantId }) => {
      const { rows, next } = await streams.records(await dataStreamIdOf(events, tenantId, dataStream), page);
      return { records: rows, next };
    })
    .handle('trigger-training', ingest['trigger-training'].request, (request, { tenantId, actor }) =>
      trigger.trigger(tenantId, request, actor ?? INGEST_ACTOR),
    );
}
