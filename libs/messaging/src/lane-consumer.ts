import type { JsMsg } from 'nats';
import {
  eventFilter,
  isEventType,
  JETSTREAM_OF,
  parseStreamId,
  type Category,
  type ConsumerLane,
  type DeadLetter,
  type EventType,
  type LaneHandler,
  type ResumedLane,
} from '#hotbed/contracts';
import { ackDecision, retryDelayMs } from './ack-decision';
import { text, type Broker } from './broker';
import { ensureConsumer } from './event-streams';
import { noObserver, type ConsumerObserver } from './consumer-observer';
import { confirmAck, PullLoop } from './pull-loop';
import { ResumedLanes } from './resumed-lanes';

/** After a crash an unacknowledged message comes back after this long; work that takes longer says that it goes on. */
const ACK_WAIT_MS = 10_000;

export interface LaneConsumerDefinition {
  /** Stable for ever: name of the durable consumer and of its lanes, for example `rewarder-rollouts`. */
  name: string;
  category: Category;
  /** Event types that the handler is given; others of the stream are passed over (the cursor moves on). */
  types: readonly EventType[];
  /** Effect and own events of one lane, in one transaction with its cursor. */
  handle: LaneHandler;
  /** Lanes worked on at the same time; default 8. */
  concurrency?: number;
  /** One message per pull: for handlers that take seconds. */
  longWork?: boolean;
  /** Attempts before the lane is parked; default 20 (about a quarter of an hour). */
  maxAttempts?: number;
  ackWaitMs?: number;
  /** How often to look for lanes that were opened again; default 2 s. */
  lookForResumedMs?: number;
}

export interface LaneConsumerPorts {
  lane: ConsumerLane;
  deadLetter: DeadLetter;
  observer?: ConsumerObserver;
  /** For the log: what went wrong, and the error. */
  onProblem?: (line: string, error?: unknown) => void;
}

/** The longest that a resumed lane waits for its consumer to notice. */
const LOOK_FOR_RESUMED_MS = 2_000;

interface Held {
  message: JsMsg;
  version: bigint;
}

interface LaneQueue {
  waiting: Held[];
  running: boolean;
  /** The version that failed last, so that attempts of one failure are counted together. */
  failure: { version: bigint; untilMs: number } | null;
}

/**
 * Consumes the events of one category, each stream a lane of its own.
 *
 * 1. A message only says "this stream is at version v": the events come from PostgreSQL, in order, exactly once.
 * 2. Lanes run in parallel; one lane never does. Messages that wait for one lane are covered by one transaction.
 * 3. Acknowledged (and the acknowledgement confirmed) only after the commit.
 * 4. A failure stops its own lane only: retried with growing pauses, then parked with one dead letter.
 * 5. A parked lane that was opened again is worked off from the log, without a message: its messages are long gone.
 */
export class LaneConsumer {
  private readonly lanes = new Map<string, LaneQueue>();
  private readonly ready: string[] = [];
  private running = 0;
  private acknowledging = 0;
  private stopping = false;
  private idle: (() => void) | undefined;
  private readonly loop: PullLoop;
  private readonly resumed: ResumedLanes;
  private readonly concurrency: number;
  private readonly observer: ConsumerObserver;
  private readonly onProblem: (line: string, error?: unknown) => void;
  private readonly wanted: ReadonlySet<string>;

  constructor(
    private readonly broker: Broker,
    private readonly definition: LaneConsumerDefinition,
    private readonly ports: LaneConsumerPorts,
  ) {
    this.concurrency = definition.concurrency ?? 8;
    this.observer = ports.observer ?? noObserver;
    this.onProblem = ports.onProblem ?? (() => undefined);
    this.wanted = new Set(definition.types);
    const ackWaitMs = definition.ackWaitMs ?? ACK_WAIT_MS;
    const stream = JETSTREAM_OF[definition.category];
    // A server of 2.9 takes one filter: the type where there is one, else the whole category.
    const [only] = definition.types.length === 1 ? definition.types : [];
    this.loop = new PullLoop({
      broker,
      stream,
      durable: definition.name,
      ackWaitMs,
      capacity: definition.longWork === true ? this.concurrency : this.concurrency * 64,
      batch: definition.longWork === true ? 1 : this.concurrency * 64,
      ensure: () =>
        ensureConsumer(broker, {
          stream,
          durable: definition.name,
          filterSubject: eventFilter(definition.category, only),
          ackWaitMs,
          deliver: 'all',
        }),
      onMessage: (message) => this.receive(message),
      onProblem: (line, error) => this.onProblem(`${definition.name}: ${line}`, error),
    });
    this.resumed = new ResumedLanes({
      find: () => ports.deadLetter.resumed(definition.name),
      workOff: (lane) => this.workOff(lane),
      everyMs: definition.lookForResumedMs ?? LOOK_FOR_RESUMED_MS,
      onProblem: (line, error) => this.onProblem(`${definition.name}: ${line}`, error),
    });
  }

  /** @throws InvalidInput when the durable consumer exists with another configuration */
  async start(): Promise<void> {
    await this.loop.start();
    this.resumed.start();
  }

  /** Stops pulling, finishes the lanes at work, gives back what waits. Resolves when nothing is held. */
  async stop(): Promise<void> {
    this.stopping = true;
    this.loop.stop();
    this.ready.length = 0;
    for (const lane of this.lanes.values()) for (const { message } of lane.waiting.splice(0)) this.giveBack(message, 0);
    await this.resumed.stop();
    if (this.running + this.acknowledging > 0) await new Promise<void>((resolve) => (this.idle = resolve));
    this.loop.end();
  }

  /** One event at a time from the one that failed on, so that the right version is named should it fail again. */
  private async workOff({ streamId, failedVersion, streamVersion }: ResumedLane): Promise<void> {
    const lane = this.laneOf(streamId);
    // A message is at it, or the pause after its last failure is not over.
    if (lane.running || lane.waiting.length > 0 || (lane.failure?.untilMs ?? 0) > Date.now()) return;
    lane.running = true;
    let version = failedVersion;
    try {
      for (; version <= streamVersion && !this.stopping; version++) await this.advance(streamId, version);
      lane.failure = null;
    } catch (error) {
      await this.failed(streamId, lane, [], version, error);
    }
    lane.running = false;
    this.goOn(streamId, lane);
    this.runReady();
  }

  private goOn(streamId: string, lane: LaneQueue): void {
    if (lane.waiting.length > 0 && !this.stopping) this.ready.push(streamId);
    else if (lane.waiting.length === 0 && lane.failure === null) this.lanes.delete(streamId);
  }

  private receive(message: JsMsg): void {
    const streamId = message.headers?.get('ce-streamid') ?? '';
    const version = message.headers?.get('ce-streamversion') ?? '';
    const type = message.headers?.get('ce-type') ?? '';
    if (!isLane(streamId, this.definition.category) || !/^[1-9][0-9]{0,18}$/.test(version)) {
      this.onProblem(`${this.definition.name}: message ${message.seq} on ${message.subject} is no event; set aside`);
      this.observer.settled(this.definition.name, 'foreign');
      message.term();
      return this.loop.release(message);
    }
    // Nothing for the handler, so no cursor has to move. An unknown type is never passed over.
    if (isEventType(type) && !this.wanted.has(type)) return void this.acknowledge([message], 'passed');
    const lane = this.laneOf(streamId);
    lane.waiting.push({ message, version: BigInt(version) });
    if (!lane.running && lane.waiting.length === 1) this.ready.push(streamId);
    this.runReady();
  }

  private laneOf(streamId: string): LaneQueue {
    let lane = this.lanes.get(streamId);
    if (lane === undefined) this.lanes.set(streamId, (lane = { waiting: [], running: false, failure: null }));
    return lane;
  }

  private runReady(): void {
    while (this.running < this.concurrency && !this.stopping) {
      const streamId = this.ready.shift();
      if (streamId === undefined) return;
      const lane = this.laneOf(streamId);
      lane.running = true;
      this.running += 1;
      void this.runLane(streamId, lane).finally(() => {
        lane.running = false;
        this.running -= 1;
        this.goOn(streamId, lane);
        this.tellIdle();
        this.runReady();
      });
    }
  }

  private async runLane(streamId: string, lane: LaneQueue): Promise<void> {
    const held = lane.waiting.splice(0).sort((a, b) => (a.version < b.version ? -1 : 1));
    const pauseMs = (lane.failure?.untilMs ?? 0) - Date.now();
    if (pauseMs > 0) return void held.forEach(({ message }) => this.giveBack(message, pauseMs));
    try {
      await this.advance(streamId, held.at(-1)!.version);
      lane.failure = null;
      // The lane may go on while the acknowledgements travel.
      void this.acknowledge(
        held.map((h) => h.message),
        'handled',
      );
    } catch (error) {
      if (held.length === 1 || ackDecision(error) === 'settle')
        return this.failed(streamId, lane, held, held[0]!.version, error);
      // Several messages in one go: find out how far the lane gets, so that the right version is named.
      for (const [index, one] of held.entries()) {
        try {
          await this.advance(streamId, one.version);
          lane.failure = null;
          void this.acknowledge([one.message], 'handled');
        } catch (oneError) {
          return this.failed(streamId, lane, held.slice(index), one.version, oneError);
        }
      }
    }
  }

  private async advance(streamId: string, version: bigint): Promise<void> {
    await this.ports.lane.advance(this.definition.name, streamId, version, this.handler);
  }

  private readonly handler: LaneHandler = async (events, uow) => {
    const wanted = events.filter((event) => this.wanted.has(event.type));
    if (wanted.length > 0) await this.definition.handle(wanted, uow);
  };

  private async failed(
    streamId: string,
    lane: LaneQueue,
    held: readonly Held[],
    failedVersion: bigint,
    error: unknown,
  ): Promise<void> {
    const { name, maxAttempts = 20 } = this.definition;
    const decision = ackDecision(error);
    if (decision === 'settle') return this.settle(held);
    const version = lane.failure?.version ?? failedVersion;
    try {
      const attempts = await this.ports.lane.recordFailure(name, streamId, version, describe(error));
      if (decision === 'park' || attempts >= maxAttempts) {
        await this.ports.deadLetter.park(name, streamId, version, describe(error));
        this.onProblem(`${name}: ${streamId} is parked at version ${version} after ${attempts} attempt(s)`, error);
        this.observer.settled(name, 'parked');
        lane.failure = null;
        return this.settle(held);
      }
      const pauseMs = retryDelayMs(attempts, error);
      this.onProblem(
        `${name}: ${streamId} version ${version}, attempt ${attempts} failed; again in ${pauseMs} ms`,
        error,
      );
      lane.failure = { version, untilMs: Date.now() + pauseMs };
      for (const { message } of held) this.giveBack(message, pauseMs);
    } catch (portError) {
      // PostgreSQL does not answer, so nothing can be counted or parked: the broker keeps the message.
      this.onProblem(`${name}: ${streamId} failed, and the failure cannot be recorded`, portError);
      for (const { message } of held) this.giveBack(message, 1000);
    }
  }

  /** The lane is parked: its events wait in the log, not on the broker. */
  private settle(held: readonly Held[]): void {
    for (const { message } of held) {
      message.term();
      this.loop.release(message);
    }
  }

  private giveBack(message: JsMsg, delayMs: number): void {
    message.nak(Math.ceil(delayMs));
    this.observer.settled(this.definition.name, 'returned');
    this.loop.release(message);
  }

  private async acknowledge(messages: readonly JsMsg[], outcome: 'handled' | 'passed'): Promise<void> {
    this.acknowledging += 1;
    await Promise.all(
      messages.map(async (message) => {
        await confirmAck(this.broker, message, (line, error) =>
          this.onProblem(`${this.definition.name}: ${line}`, error),
        );
        this.observer.settled(this.definition.name, outcome);
        this.loop.release(message);
      }),
    );
    this.acknowledging -= 1;
    this.tellIdle();
  }

  private tellIdle(): void {
    if (this.running + this.acknowledging === 0) this.idle?.();
  }
}

function isLane(streamId: string, category: Category): boolean {
  try {
    return parseStreamId(streamId).category === category;
  } catch {
    return false;
  }
}

function describe(error: unknown): string {
  return error instanceof Error ? `${error.name}: ${text(error)}` : String(error);
}
