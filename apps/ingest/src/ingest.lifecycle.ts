import type {
  BeforeApplicationShutdown,
  OnApplicationBootstrap,
  OnApplicationShutdown,
  OnModuleDestroy,
} from '@nestjs/common';
import { COMMANDS } from '#hotbed/contracts';
import type { createPool, LogListener, ProjectionRunner } from '#hotbed/event-store';
import type { Broker, LaneConsumer, RpcServer } from '#hotbed/messaging';
import type { Health } from '#hotbed/runtime';
import type { RecordConsumers } from './record/record.consumers';
import type { TriggerTrainingHandler } from './trigger/trigger-training.handler';

interface Parts {
  pool: ReturnType<typeof createPool>;
  broker: Broker;
  listener: LogListener;
  rpc: RpcServer;
  records: RecordConsumers;
  lanes: readonly LaneConsumer[];
  projection: ProjectionRunner;
  trigger: TriggerTrainingHandler;
  onProblem: (line: string, error?: unknown) => void;
}

/** Interval triggers are looked at this often. */
const CLOCK_MS = 1_000;

/** Starts and stops ingest's parts in order: stop pulling, finish, drain the broker, close the database. */
export class IngestLifecycle
  implements OnApplicationBootstrap, OnModuleDestroy, BeforeApplicationShutdown, OnApplicationShutdown
{
  private clock: NodeJS.Timeout | null = null;
  private ticking: Promise<void> = Promise.resolve();

  constructor(
    private readonly parts: Parts,
    health: Health,
  ) {
    health.readiness('ingest broker', () => parts.broker.assertConnected());
    health.readiness('ingest projection', () => {
      if (parts.projection.failure instanceof Error) throw parts.projection.failure;
    });
  }

  async onApplicationBootstrap(): Promise<void> {
    try {
      await this.start();
    } catch (error) {
      // Nest ends nothing of an app that did not start.
      await this.onModuleDestroy();
      await this.onApplicationShutdown();
      throw error;
    }
  }

  private async start(): Promise<void> {
    const { projection, lanes, records, rpc } = this.parts;
    projection.start();
    await Promise.all(lanes.map((lane) => lane.start()));
    records.start();
    rpc.start(Object.keys(COMMANDS.ingest));
    // Started means that whoever asks from now on is answered.
    await this.parts.broker.nats.flush();
    this.clock = setInterval(() => this.tick(), CLOCK_MS);
  }

  async onModuleDestroy(): Promise<void> {
    if (this.clock !== null) clearInterval(this.clock);
    await Promise.all([
      this.ticking,
      this.parts.rpc.stop(),
      this.parts.records.stop(),
      this.parts.projection.stop(),
      ...this.parts.lanes.map((lane) => lane.stop()),
    ]);
  }

  beforeApplicationShutdown(): Promise<void> {
    return this.parts.broker.close();
  }

  async onApplicationShutdown(): Promise<void> {
    await this.parts.listener.close();
    await this.parts.pool.end();
  }

  private tick(): void {
    this.ticking = this.ticking
      .then(() => this.parts.trigger.fireDue())
      .catch((error: unknown) => this.parts.onProblem('interval triggers could not be looked at; trying again', error));
  }
}
