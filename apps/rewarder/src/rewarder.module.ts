import {
  Module,
  type BeforeApplicationShutdown,
  type DynamicModule,
  type OnApplicationBootstrap,
  type OnApplicationShutdown,
  type OnModuleDestroy,
} from '@nestjs/common';
import { createPool, FileBlobStore, PgConsumerLane, PgEventStore, PgTransactions } from '#hotbed/event-store';
import { Broker, LaneConsumer, lingeringLane } from '#hotbed/messaging';
import { Bases } from '#hotbed/models';
import type { AppHost } from '#hotbed/runtime';
import { Judge } from './judging/judge';
import type { RewarderConfig } from './rewarder.config';
import { PastEvents } from './rollouts/past-events';
import { rewardRollouts } from './rollouts/reward-rollouts';

type Pool = ReturnType<typeof createPool>;

/** Groups of one step are completed within milliseconds of each other: rewarded together they cost one transaction. */
const LINGER_MS = 5;
/** Most of them are lingering. */
const LANES_AT_ONCE = 32;

/** What the app stands on. Reads have a pool of their own: inside a transaction a handler holds a connection. */
export interface Foundations {
  pools: { transactions: Pool; reads: Pool };
  broker: Broker;
}

/** Connects, and says what is wrong with the broker before anything is served. */
export async function openFoundations(config: RewarderConfig, host: AppHost): Promise<Foundations> {
  const pool = (part: string): Pool =>
    createPool(config.databaseUrl, {
      applicationName: `hotbed-rewarder-${part}`,
      onError: (error) => host.logger.warn({ err: error }, 'an idle database connection broke'),
    });
  const broker = await Broker.connect({
    ...config.nats,
    name: 'rewarder',
    onStatus: (line) => host.logger.info({ line }, 'broker'),
  });
  return { pools: { transactions: pool('transactions'), reads: pool('reads') }, broker };
}

class Rewarder implements OnApplicationBootstrap, OnModuleDestroy, BeforeApplicationShutdown, OnApplicationShutdown {
  constructor(
    private readonly foundations: Foundations,
    private readonly bases: Bases,
    private readonly lane: LaneConsumer,
    private readonly judge: Judge,
  ) {}

  /** A wrong model folder is noticed before anything is taken. */
  async onApplicationBootstrap(): Promise<void> {
    await this.bases.openFolder();
    await this.lane.start();
  }

  async onModuleDestroy(): Promise<void> {
    await this.lane.stop();
    await this.judge.close();
  }

  beforeApplicationShutdown(): Promise<void> {
    return this.foundations.broker.close();
  }

  async onApplicationShutdown(): Promise<void> {
    await Promise.all([this.foundations.pools.transactions.end(), this.foundations.pools.reads.end()]);
  }
}

@Module({})
export class RewarderModule {
  static register(config: RewarderConfig, foundations: Foundations, host: AppHost): DynamicModule {
    return {
      module: RewarderModule,
      providers: [{ provide: Rewarder, useFactory: () => compose(config, foundations, host) }],
    };
  }
}

function compose(config: RewarderConfig, foundations: Foundations, host: AppHost): Rewarder {
  const { pools, broker } = foundations;
  const logger = host.logger.child({ app: 'rewarder' });
  const blobs = new FileBlobStore({ root: config.blobFolder });
  const store = new PgEventStore(pools.reads, blobs);
  const lanes = new PgConsumerLane(new PgTransactions(pools.transactions, blobs), blobs);
  const bases = new Bases(store, config.modelFolder);
  const judge = new Judge(config.verifierFolder);
  const lane = new LaneConsumer(
    broker,
    {
      name: 'rewarder-rollouts',
      category: 'rollouts',
      types: ['RolloutsCompleted'],
      concurrency: LANES_AT_ONCE,
      handle: rewardRollouts(new PastEvents(store), bases, judge),
    },
    {
      lane: lingeringLane(lanes, LINGER_MS),
      deadLetter: lanes,
      onProblem: (line, error) => logger.warn({ err: error }, line),
    },
  );
  host.health.readiness('rewarder broker', () => broker.assertConnected());
  return new Rewarder(foundations, bases, lane, judge);
}
