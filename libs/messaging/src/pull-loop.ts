import { createInbox, nanos, type JsMsg, type Msg, type Subscription } from 'nats';
// Not exported at the root; the dependency is pinned to an exact version.
import { toJsMsg } from 'nats/lib/jetstream/jsmsg';
import { DomainError } from '#hotbed/contracts';
import { inboxPrefix, text, type Broker } from './broker';

export interface PullLoopOptions {
  broker: Broker;
  stream: string;
  durable: string;
  ackWaitMs: number;
  /** Messages held at the same time at most. */
  capacity: number;
  /** Messages asked for at once at most; 1 where work is long. */
  batch: number;
  /** Makes the consumer where missing. */
  ensure: () => Promise<void>;
  /** A message to work on; it stays ours (in-progress acknowledgements) until `release`. */
  onMessage: (message: JsMsg) => void;
  onProblem: (line: string, error?: unknown) => void;
}

const EXPIRES_MS = 10_000;
const LOST_AFTER_MS = EXPIRES_MS + 2000;
const RETRY_MS = { first: 100, most: 5000 };

/**
 * Pulls messages of one durable consumer.
 *
 * 1. One pull is outstanding at a time; the next is sent when it is used up, has expired, or is lost with a connection.
 * 2. No more messages are held than `capacity`, so none waits here while another process is idle.
 * 3. Every held message is kept alive: long work and waiting in our queue never let the server send it again.
 * 4. A consumer or stream that vanished is made again (`ensure`), with growing pauses, for ever.
 */
export class PullLoop {
  private readonly held = new Set<JsMsg>();
  private subscription: Subscription | undefined;
  private inbox = '';
  private pullNumber = 0;
  /** Messages that the outstanding pull may still bring; 0 = none outstanding. */
  private outstanding = 0;
  private lostTimer: NodeJS.Timeout | undefined;
  private retryTimer: NodeJS.Timeout | undefined;
  private retryMs = RETRY_MS.first;
  private ensuring = false;
  private stopped = false;
  private keepAlive: NodeJS.Timeout | undefined;
  private stopListening: (() => void) | undefined;

  constructor(private readonly options: PullLoopOptions) {}

  /** Makes the consumer and begins to pull. @throws InvalidInput when the consumer's configuration has drifted */
  async start(): Promise<void> {
    const { broker, ackWaitMs } = this.options;
    this.inbox = createInbox(inboxPrefix(broker.user));
    this.subscription = broker.nats.subscribe(`${this.inbox}.*`, {
      callback: (error, message) => {
        if (error === null) this.receive(message);
        else this.options.onProblem('pull subscription', error);
      },
    });
    this.stopListening = broker.onReconnect(() => this.pullAnew());
    this.keepAlive = setInterval(() => {
      for (const message of this.held) message.working();
    }, ackWaitMs / 3);
    try {
      await this.options.ensure();
      this.pull();
    } catch (error) {
      if (!isTransient(error)) {
        this.stop();
        throw error;
      }
      this.ensureLater(error);
    }
  }

  /** The message is acknowledged (or given back): it no longer counts, and may be followed by another. */
  release(message: JsMsg): void {
    this.held.delete(message);
    if (this.outstanding === 0) this.pull();
  }

  get heldCount(): number {
    return this.held.size;
  }

  /** No further messages. What is held stays held and alive until released; `end` it afterwards. */
  stop(): void {
    this.stopped = true;
    this.stopListening?.();
    clearTimeout(this.lostTimer);
    clearTimeout(this.retryTimer);
    // Drained, not cut off: what is on its way is given back at once instead of after the acknowledgement wait.
    const subscription = this.subscription;
    this.subscription = undefined;
    if (subscription !== undefined && !subscription.isClosed()) subscription.drain().catch(() => undefined);
  }

  end(): void {
    this.stop();
    clearInterval(this.keepAlive);
  }

  private pull(): void {
    const { broker, stream, durable, capacity, batch } = this.options;
    if (this.stopped || this.ensuring || this.outstanding > 0) return;
    const free = Math.min(batch, capacity - this.held.size);
    if (free <= 0) return;
    this.outstanding = free;
    this.pullNumber += 1;
    clearTimeout(this.lostTimer);
    this.lostTimer = setTimeout(() => this.pullAnew(), LOST_AFTER_MS);
    try {
      broker.nats.publish(
        `$JS.API.CONSUMER.MSG.NEXT.${stream}.${durable}`,
        JSON.stringify({ batch: free, expires: nanos(EXPIRES_MS) }),
        { reply: `${this.inbox}.${this.pullNumber}` },
      );
    } catch (error) {
      this.outstanding = 0;
      this.ensureLater(error);
    }
  }

  private pullAnew(): void {
    this.outstanding = 0;
    this.pull();
  }

  private receive(message: Msg): void {
    const status = message.headers?.code ?? 0;
    if (status !== 0 && message.subject.startsWith(this.inbox)) return this.receiveStatus(message, status);
    const jsMessage = toJsMsg(message, 5000);
    if (this.stopped) return jsMessage.nak();
    this.retryMs = RETRY_MS.first;
    this.outstanding = Math.max(0, this.outstanding - 1);
    this.held.add(jsMessage);
    this.options.onMessage(jsMessage);
    if (this.outstanding === 0) this.pull();
  }

  private receiveStatus(message: Msg, status: number): void {
    // An answer to an earlier pull that was taken for lost.
    if (message.subject !== `${this.inbox}.${this.pullNumber}` || status === 100) return;
    this.outstanding = 0;
    if (status === 408 || status === 404) this.pull();
    else this.ensureLater(new Error(`${status} ${message.headers?.description ?? ''}`));
  }

  private ensureLater(reason: unknown): void {
    if (this.stopped || this.ensuring) return;
    this.ensuring = true;
    clearTimeout(this.lostTimer);
    this.options.onProblem(`pulling pauses for ${this.retryMs} ms`, reason);
    this.retryTimer = setTimeout(() => {
      this.options.ensure().then(
        () => {
          this.ensuring = false;
          this.pullAnew();
        },
        (error: unknown) => {
          this.ensuring = false;
          this.ensureLater(error);
        },
      );
    }, this.retryMs);
    this.retryMs = Math.min(this.retryMs * 2, RETRY_MS.most);
  }
}

function isTransient(error: unknown): boolean {
  return !(error instanceof DomainError) || error.retryable;
}

/** Acknowledges and waits for the server's word. @returns false when it did not come: the message may come again */
export async function confirmAck(
  broker: Broker,
  message: JsMsg,
  onProblem: (line: string, error: unknown) => void,
): Promise<boolean> {
  let stop = (): void => undefined;
  const lost = new Promise<never>((_, reject) => {
    stop = broker.onDisconnect(() => reject(new Error('the connection was lost')));
  });
  try {
    broker.assertConnected();
    return await Promise.race([message.ackAck(), lost]);
  } catch (error) {
    onProblem(`acknowledgement of ${message.subject} ${message.seq} is not confirmed: ${text(error)}`, error);
    return false;
  } finally {
    stop();
  }
}
