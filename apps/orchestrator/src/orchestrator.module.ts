import {
  Module,
  type BeforeApplicationShutdown,
  type DynamicModule,
  type OnApplicationBootstrap,
  type OnApplicationShutdown,
  type OnModuleDestroy,
} from '@nestjs/common';
import { COMMANDS, type ConsumerLane, type DeadLetter } from '#hotbed/contracts';
import { createPool, FileBlobStore, PgConsumerLane, PgEventStore, PgTransactions } from '#hotbed/event-store';
import { Broker, LaneConsumer, RpcServer, lingeringLane } from '#hotbed/messaging';
import { Bases } from '#hotbed/models';
import type { AppHost } from '#hotbed/runtime';
import { MoveAliasHandler } from './alias/move-alias.handler';
import { ControlExperimentHandler } from './experiment/control-experiment.handler';
import { CreateExperimentHandler } from './experiment/create-experiment.handler';
import { ExperimentProcess } from './experiment/experiment-process';
import { GetExperimentHandler } from './experiment/get-experiment.handler';
import { ListExperimentsHandler } from './experiment/list-experiments.handler';
import { restoreExperiments } from './experiment/restore-experiments';
import { workerLiveness } from './bases/worker-liveness';
import { handleOrchestratorCommands } from './orchestrator.commands';
import type { OrchestratorConfig } from './orchestrator.config';
import { orchestratorLanes } from './orchestrator.lanes';
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

/** Connects to what everything else stands on. */
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

interface Parts {
  /** What must be done before anything is served. */
  prepare: () => Promise<unknown>;
  lanes: readonly LaneConsumer[];
  rpc: RpcServer;
}

/** Starts and stops the parts in order: prepare, serve; stop pulling, finish, drain the broker, close the database. */
class Orchestrator
  implements OnApplicationBootstrap, OnModuleDestroy, BeforeApplicationShutdown, OnApplicationShutdown
{
  constructor(
    private readonly foundations: Foundations,
    private readonly parts: Parts,
  ) {}

  async onApplicationBootstrap(): Promise<void> {
    const { prepare, lanes, rpc } = this.parts;
    await prepare();
    await Promise.all(lanes.map((lane) => lane.start()));
    rpc.start(Object.keys(COMMANDS.orchestrator));
    // Started means that whoever asks from now on is answered.
    await this.foundations.broker.flush();
  }

  async onModuleDestroy(): Promise<void> {
    await Promise.all([this.parts.rpc.stop(), ...this.parts.lanes.map((lane) => lane.stop())]);
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
      providers: [{ provide: Orchestrator, useFactory: () => compose(config, foundations, host) }],
    };
  }
}

function compose(config: OrchestratorConfig, foundations: Foundations, host: AppHost): Orchestrator {
  const { pools, broker } = foundations;
  const logger = host.logger.child({ app: 'orchestrator' });
  const blobs = new FileBlobStore({ root: config.blobFolder });
  const store = new PgEventStore(pools.reads, blobs);
  const transactions = new PgTransactions(pools.transactions, blobs);
  const lane: ConsumerLane & DeadLetter = new PgConsumerLane(transactions, blobs);

  const bases = new Bases(store, config.modelFolder, workerLiveness(transactions));
  const process = new ExperimentProcess(store, new RecordWindows(store, bases));
  const handlers = {
    create: new CreateExperimentHandler(store, transactions, bases, config.verifierFolder),
    control: new ControlExperimentHandler(store, transactions, process, bases),
    get: new GetExperimentHandler(store, transactions, process, bases),
    list: new ListExperimentsHandler(transactions, bases),
    requestSamples: new RequestSamplesHandler(store, bases),
    readSamples: new ReadSamplesHandler(store, bases),
    moveAlias: new MoveAliasHandler(store),
  };

  const ports = {
    lane: lingeringLane(lane, LINGER_MS),
    deadLetter: lane,
    onProblem: (line: string, error?: unknown) => logger.warn({ err: error }, line),
  };
  const lanes = orchestratorLanes(process, store).map((definition) => new LaneConsumer(broker, definition, ports));
  const rpc = handleOrchestratorCommands(
    new RpcServer(broker, 'orchestrator', {
      onBug: (command, error) => logger.error({ err: error, command }, 'a command failed unexpectedly'),
    }),
    handlers,
  );
  const prepare = async (): Promise<void> => {
    // A wrong folder is noticed here, not at the first prompt.
    await bases.openFolder();
    await restoreExperiments(store, transactions, process);
  };
  host.health.readiness('orchestrator broker', () => broker.assertConnected());
  return new Orchestrator(foundations, { prepare, lanes, rpc });
}
