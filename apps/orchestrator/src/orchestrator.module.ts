import {
  Module,
  type BeforeApplicationShutdown,
  type DynamicModule,
  type OnApplicationShutdown,
  type OnModuleDestroy,
} from '@nestjs/common';
import { COMMANDS, type ConsumerLane, type DeadLetter } from '#hotbed/contracts';
import { createPool, FileBlobStore, PgConsumerLane, PgEventStore, PgTransactions } from '#hotbed/event-store';
import { Broker, LaneConsumer, RpcServer, lingeringLane } from '#hotbed/messaging';
import type { AppHost } from '#hotbed/runtime';
import { MoveAliasHandler } from './alias/move-alias.handler';
import { Bases } from '#hotbed/models';
import { bindCommands, laneDefinitions, type CommandHandlers } from './consumers';
import { ControlExperimentHandler } from './experiment/control-experiment.handler';
import { CreateExperimentHandler } from './experiment/create-experiment.handler';
import { ExperimentProcess } from './experiment/experiment-process';
import { GetExperimentHandler } from './experiment/get-experiment.handler';
import { ListExperimentsHandler } from './experiment/list-experiments.handler';
import { restoreExperiments } from './experiment/restore-experiments';
import { workerLiveness } from './bases/worker-liveness';
import type { OrchestratorConfig } from './orchestrator.config';
import { RecordWindows } from './records/record-windows';
import { ReadSamplesHandler } from './samples/read-samples.handler';
import { RequestSamplesHandler } from './samples/request-samples.handler';

/** Rewards of one step arrive within milliseconds of each other: taken together they cost one transaction. */
const LINGER_MS = 5;

/** What the app stands on. Handlers read through a pool of their own: inside a transaction they hold a connection. */
export interface Foundations {
  pools: { transactions: Pool; reads: Pool };
  broker: Broker;
}
type Pool = ReturnType<typeof createPool>;

/** Connects, and says what is wrong with database, broker or model folder before anything is served. */
export async function openFoundations(config: OrchestratorConfig, host: AppHost): Promise<Foundations> {
  const pool = (part: string): Pool =>
    createPool(config.databaseUrl, {
      applicationName: `hotbed-orchestrator-${part}`,
      onError: (error) => host.logger.warn({ err: error }, 'an idle database connection broke'),
    });
  const broker = await Broker.connect({
    ...config.nats,
    name: 'orchestrator',
    onStatus: (line) => host.logger.info({ line }, 'broker'),
  });
  return { pools: { transactions: pool('transactions'), reads: pool('reads') }, broker };
}

/** Serves: restores the fold, then consumes lanes and answers commands. */
class Orchestrator implements OnModuleDestroy, BeforeApplicationShutdown, OnApplicationShutdown {
  constructor(
    private readonly foundations: Foundations,
    private readonly lanes: readonly LaneConsumer[],
    private readonly rpc: RpcServer,
  ) {}

  async onModuleDestroy(): Promise<void> {
    await Promise.all([this.rpc.stop(), ...this.lanes.map((lane) => lane.stop())]);
  }

  beforeApplicationShutdown(): Promise<void> {
    return this.foundations.broker.close();
  }

  async onApplicationShutdown(): Promise<void> {
    await Promise.all([this.foundations.pools.transactions.end(), this.foundations.pools.reads.end()]);
  }
}

@Module({})
export class OrchestratorModule {
  static register(config: OrchestratorConfig, foundations: Foundations, host: AppHost): DynamicModule {
    return {
      module: OrchestratorModule,
      providers: [{ provide: Orchestrator, useFactory: () => serve(config, foundations, host) }],
    };
  }
}

async function serve(config: OrchestratorConfig, foundations: Foundations, host: AppHost): Promise<Orchestrator> {
  const { pools, broker } = foundations;
  const logger = host.logger.child({ app: 'orchestrator' });
  const blobs = new FileBlobStore({ root: config.blobFolder });
  const store = new PgEventStore(pools.reads, blobs);
  const transactions = new PgTransactions(pools.transactions, blobs);
  const lane: ConsumerLane & DeadLetter = new PgConsumerLane(transactions, blobs);

  const bases = new Bases(store, config.modelFolder, workerLiveness(transactions));
  await bases.openFolder();
  const process = new ExperimentProcess(store, new RecordWindows(store, bases));
  const handlers: CommandHandlers = {
    create: new CreateExperimentHandler(store, transactions, bases, config.verifierFolder),
    control: new ControlExperimentHandler(store, transactions, process, bases),
    get: new GetExperimentHandler(store, transactions, process, bases),
    list: new ListExperimentsHandler(transactions, bases),
    requestSamples: new RequestSamplesHandler(store, bases),
    readSamples: new ReadSamplesHandler(store, bases),
    moveAlias: new MoveAliasHandler(store),
  };

  await restoreExperiments(store, transactions, process);
  const ports = {
    lane: lingeringLane(lane, LINGER_MS),
    deadLetter: lane,
    onProblem: (line: string, error?: unknown) => logger.warn({ err: error }, line),
  };
  const lanes = laneDefinitions(process, store).map((definition) => new LaneConsumer(broker, definition, ports));
  const rpc = bindCommands(
    new RpcServer(broker, 'orchestrator', {
      onBug: (command, error) => logger.error({ err: error, command }, 'a command failed unexpectedly'),
    }),
    handlers,
  );
  await Promise.all(lanes.map((consumer) => consumer.start()));
  rpc.start(Object.keys(COMMANDS.orchestrator));
  host.health.readiness('orchestrator-broker', () => broker.assertConnected());
  return new Orchestrator(foundations, lanes, rpc);
}
