import type { BeforeApplicationShutdown, OnApplicationBootstrap, OnModuleDestroy } from '@nestjs/common';
import { Counter, Gauge } from 'prom-client';
import type { EventStore } from '#hotbed/contracts';
import type { RelayCursors } from '#hotbed/event-store';
import type { EventStreamWriter } from '#hotbed/messaging';
import type { AppHost } from '#hotbed/runtime';
import { pause, type Leadership } from './leadership';
import { Relay } from './relay';
import { AheadOfLog, StreamRelay } from './stream-relay';

export interface RelayHostParts {
  store: EventStore;
  cursors: RelayCursors;
  writers: readonly EventStreamWriter[];
  leadership: Leadership;
  wake: { waitBeyond(position: bigint, timeoutMs: number, signal?: AbortSignal): Promise<void> };
  maxAgeMs: number;
  host: AppHost;
  /** Calls back after each reconnection to the broker. */
  onReconnect: (listener: () => void) => () => void;
  verifyEveryMs?: number;
  close: () => Promise<void>;
}

const ELECTION_RETRY_MS = 1000;

/** Keeps one relay running whenever this process is the leader; stands by otherwise. */
export class RelayHost implements OnApplicationBootstrap, OnModuleDestroy, BeforeApplicationShutdown {
  private readonly stop = new AbortController();
  private running: Promise<void> = Promise.resolve();
  private relay: Relay | undefined;
  private isStandby = true;
  private fault: Error | undefined;
  private readonly published: Counter;
  private readonly rewinds: Counter;

  constructor(private readonly parts: RelayHostParts) {
    const registers = [parts.host.metrics];
    this.published = new Counter({ name: 'hotbed_relay_events_total', help: 'events published', registers });
    this.rewinds = new Counter({
      name: 'hotbed_relay_rewinds_total',
      help: 'losses of the broker that were refilled',
      labelNames: ['stream', 'reason'],
      registers,
    });
    const position = (): number => Number(this.relay?.position ?? 0n);
    new Gauge({
      name: 'hotbed_relay_position',
      help: 'position of the log up to which events were read for publishing',
      registers,
      collect() {
        this.set(position());
      },
    });
    parts.onReconnect(() => this.relay?.verifySoon());
    parts.host.health.readiness('relay streams', () => this.assertWorking());
  }

  onApplicationBootstrap(): void {
    this.running = this.serve();
  }

  async onModuleDestroy(): Promise<void> {
    this.stop.abort();
    await this.running;
  }

  async beforeApplicationShutdown(): Promise<void> {
    await this.parts.close();
  }

  private assertWorking(): void {
    if (this.fault !== undefined) throw this.fault;
    if (!this.isStandby && this.relay?.isLevel !== true) throw new Error('catching up with the log');
  }

  private async serve(): Promise<void> {
    const { logger } = this.parts.host;
    while (!this.stop.signal.aborted) {
      try {
        await this.serveTerm();
      } catch (error) {
        if (error instanceof AheadOfLog) {
          this.fault = error;
          logger.fatal({ err: error }, error.message);
          return;
        }
        logger.error({ err: error }, 'the relay pauses');
        await pause(ELECTION_RETRY_MS, this.stop.signal);
      }
    }
  }

  private async serveTerm(): Promise<void> {
    const { store, cursors, writers, leadership, wake, maxAgeMs, host } = this.parts;
    const term = await leadership.acquire(this.stop.signal);
    if (term === null) return;
    host.logger.info({ epoch: term.epoch.toString() }, 'active');
    const streams = writers.map(
      (writer) =>
        new StreamRelay({
          writer,
          store,
          cursors,
          epoch: term.epoch,
          maxAgeMs,
          onRewound: (stream, reason, from) => {
            this.rewinds.inc({ stream, reason });
            host.logger.warn(
              { stream, reason, from: from.toString() },
              'the broker lost events; refilling from the log',
            );
          },
        }),
    );
    this.relay = new Relay({
      store,
      streams,
      wake,
      onProblem: (stream, problem, error) => host.logger.warn({ stream, err: error }, problem),
      onPublished: (count) => this.published.inc(count),
      ...(this.parts.verifyEveryMs === undefined ? {} : { verifyEveryMs: this.parts.verifyEveryMs }),
    });
    this.isStandby = false;
    try {
      await this.relay.run(AbortSignal.any([this.stop.signal, term.signal]));
    } finally {
      this.isStandby = true;
      await term.end();
    }
  }
}
