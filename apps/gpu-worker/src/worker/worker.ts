import { newId, type BlobStore, type EventStore } from '#hotbed/contracts';
import type { Engine } from '#hotbed/engine';
import { Leases, type Lease, type OpenRequest, type WorkList } from '#hotbed/event-store';
import { openModelFolder, type TextTokenizer } from '#hotbed/models';
import { within, type Logger } from '#hotbed/runtime';
import type { AdapterTools } from '../adapter/adapter-tools';
import { HostedAdapters } from '../adapter/hosted-adapters';
import { PolicyStates } from '../adapter/policy-states';
import { baseModelLoaded } from '../engine/base-model';
import { Failpoints } from '../failpoint/failpoints';
import { pause, retryDelayMs } from '../retry-delay';
import { RolloutAnswerer } from '../rollout/rollout-answerer';
import { Coalesced } from './coalesced';
import { workerItem } from './worker-events';

export interface WorkerOptions {
  modelFolder: string;
  /** How often the work list is read although nobody rang, milliseconds. */
  pollIntervalMs: number;
  leaseTtlMs: number;
  /** Above this many bytes of adapters in the engine, idle ones leave it. */
  adapterMemoryBytes: number;
  /** Above this many bytes of policy states those that nobody samples from leave, oldest first. */
  policyMemoryBytes: number;
}

export interface WorkerParts {
  engine: Engine;
  events: EventStore;
  blobs: BlobStore;
  workList: WorkList;
  failpoints: Failpoints;
  logger: Logger;
  /** Registers this worker; see Leases. */
  register: (options: {
    workerId: string;
    ttlMs: number;
    onLost: (lease: Lease) => void;
    onDisconnected: (error: Error) => void;
  }) => Promise<Leases>;
}

/** Rows of the work list read at once; in-hand rows stay in it until they are answered. */
const WORK_ROWS = 5000;
/** A storm of doorbells costs at most one look at the work list in this time. */
const SCAN_GAP_MS = 2;
/** Operations at hand get this long to end before they are cancelled at shutdown. */
const GRACE_MS = 4000;
/** For each later part of a shutdown: a database that does not answer must not hold it up. */
const LAST_WORDS_MS = 2500;

/** What one registration holds; a worker that loses its lease connection begins anew with the next. */
interface Session {
  leases: Leases;
  adapters: HostedAdapters;
  ended: Promise<Error>;
}

/**
 * One engine, one base, many leased adapters. The work list is PostgreSQL's; whoever rings (`ring`) only makes it be
 * read sooner.
 */
export class Worker {
  readonly workerId = newId();
  private readonly policies: PolicyStates;
  private readonly answerer: RolloutAnswerer;
  private readonly scan: Coalesced;
  private readonly stopping = new AbortController();
  private session: Session | null = null;
  private life: Promise<void> | null = null;
  private poll: NodeJS.Timeout | null = null;
  private scanProblem: string | null = null;
  private tokenizer: Promise<TextTokenizer> | null = null;

  constructor(
    private readonly options: WorkerOptions,
    private readonly parts: WorkerParts,
  ) {
    const { engine, events, failpoints, logger } = parts;
    this.policies = new PolicyStates(engine, options.policyMemoryBytes);
    this.answerer = new RolloutAnswerer(engine, events, failpoints, logger, () => this.openTokenizer());
    this.scan = new Coalesced(() => this.scanWork(), SCAN_GAP_MS);
  }

  /** Only who stops at text needs it: a folder without tokenizer.json serves all else. */
  private openTokenizer(): Promise<TextTokenizer> {
    this.tokenizer ??= openModelFolder(this.options.modelFolder).then(({ tokenizer }) => tokenizer);
    this.tokenizer.catch(() => (this.tokenizer = null));
    return this.tokenizer;
  }

  /** Registers, says so in the log, and begins to work. @throws Unavailable when the database does not answer. */
  async start(): Promise<void> {
    this.session = await this.begin();
    const { modelFolder } = this.options;
    const loaded = await baseModelLoaded(this.workerId, modelFolder, this.parts.engine);
    await this.parts.events.append(
      workerItem(
        this.workerId,
        [
          { type: 'WorkerStarted', payload: this.startedPayload(this.session) },
          { type: 'BaseModelLoaded', payload: loaded },
        ],
        Date.now(),
      ),
    );
    this.life = this.live(this.session);
    this.poll = setInterval(() => this.ring(), this.options.pollIntervalMs);
    this.ring();
  }

  /** Something may have been accepted or asked for. */
  ring(): void {
    if (!this.stopping.signal.aborted) this.scan.ask();
  }

  /** Why it is not ready, in words; empty = ready. */
  problems(): string[] {
    if (this.session === null) return ['not registered: the database does not answer'];
    return [...(this.scanProblem === null ? [] : [this.scanProblem]), ...this.session.adapters.alarms];
  }

  counts(): { adapters: number; openPrompts: number; policyStates: number; policyBytes: number } {
    const { openPrompts } = this.answerer;
    const { size: policyStates, bytes: policyBytes } = this.policies;
    return { adapters: this.session?.adapters.count ?? 0, openPrompts, policyStates, policyBytes };
  }

  /** Finishes or abandons what is at hand, gives the leases back, says so in the log. In bounded time. */
  async stop(reason: string): Promise<void> {
    this.stopping.abort();
    if (this.poll !== null) clearInterval(this.poll);
    const session = this.session;
    const work = Promise.all([this.scan.close(), this.answerer.stop(), session?.adapters.stop()]);
    if (!(await this.ends('work at hand', work, GRACE_MS)) && session !== null) {
      await this.ends('cancelled work', session.adapters.abandon(), LAST_WORDS_MS);
    }
    if (session !== null) {
      const payload = { workerId: this.workerId, reason };
      const stopped = workerItem(this.workerId, [{ type: 'WorkerStopped', payload }], Date.now());
      await this.ends('the record of the end', this.parts.events.append(stopped), LAST_WORDS_MS);
      await this.ends('giving back the leases', session.leases.close(), LAST_WORDS_MS);
    }
    if (this.life !== null) await this.ends('registering', this.life, LAST_WORDS_MS);
  }

  /** Whether it ends well in its time. Nothing of a shutdown is needed: what is left undone is done after the next start. */
  private async ends(what: string, work: Promise<unknown>, timeoutMs: number): Promise<boolean> {
    try {
      await within(work, timeoutMs, what);
      return true;
    } catch (error) {
      this.parts.logger.warn({ err: error, what }, 'shutdown goes on without it');
      return false;
    }
  }

  /** Registers again whenever the lease connection is lost, until stopped. */
  private async live(first: Session): Promise<void> {
    let session: Session | null = first;
    for (let attempt = 1; !this.stopping.signal.aborted; attempt++) {
      if (session !== null) {
        const stopped = new Promise<null>((resolve) => {
          this.stopping.signal.addEventListener('abort', () => resolve(null), { once: true });
        });
        const error = await Promise.race([session.ended, stopped]);
        if (error === null) return;
        this.session = null;
        this.parts.logger.error({ err: error }, 'lease connection lost; everything hot is dropped');
        await session.adapters.abandon();
        attempt = 1;
      }
      await pause(retryDelayMs(attempt), this.stopping.signal);
      if (this.stopping.signal.aborted) return;
      session = await this.begin().catch((error: unknown) => {
        this.parts.logger.error({ err: error, attempt }, 'cannot register');
        return null;
      });
      if (session !== null) await this.resume(session);
    }
  }

  private async resume(session: Session): Promise<void> {
    this.session = session;
    const started = workerItem(
      this.workerId,
      [{ type: 'WorkerStarted', payload: this.startedPayload(session) }],
      Date.now(),
    );
    await this.parts.events
      .append(started)
      .catch((error: unknown) => this.parts.logger.warn({ err: error }, 'WorkerStarted could not be recorded'));
    this.ring();
  }

  private async begin(): Promise<Session> {
    let end: (error: Error) => void = () => undefined;
    const ended = new Promise<Error>((resolve) => (end = resolve));
    let adapters: HostedAdapters | null = null;
    const leases = await this.parts.register({
      workerId: this.workerId,
      ttlMs: this.options.leaseTtlMs,
      onLost: (lease) => void adapters?.lost(lease.resource),
      onDisconnected: (error) => end(error),
    });
    adapters = new HostedAdapters(this.tools(), new RecordedLeases(leases, this.workerId, this.parts.events));
    return { leases, adapters, ended };
  }

  private tools(): AdapterTools {
    const { engine, events, blobs, failpoints, logger } = this.parts;
    return { workerId: this.workerId, engine, events, blobs, policies: this.policies, failpoints, logger };
  }

  private startedPayload(session: Session) {
    return { workerId: this.workerId, identity: session.leases.identity.toString(), processId: process.pid };
  }

  private async scanWork(): Promise<void> {
    const session = this.session;
    if (session === null) return;
    try {
      const { workList, engine } = this.parts;
      const [unapplied, open] = await Promise.all([
        workList.adaptersWithUnapplied(WORK_ROWS),
        workList.openRequests(WORK_ROWS),
      ]);
      const byAdapter = groupByAdapter(open);
      for (const adapterId of unapplied) session.adapters.get(adapterId)?.wake();
      const wanted = [...unapplied, ...byAdapter.keys()].filter((id): id is string => id !== null);
      await Promise.all([...new Set(wanted)].map((adapterId) => session.adapters.host(adapterId)));
      for (const [adapterId, rows] of byAdapter) {
        const runner = adapterId === null ? null : session.adapters.get(adapterId);
        if (adapterId === null ? await this.holdsBase(session) : runner !== null) this.answerer.answer(rows, runner);
      }
      await session.adapters.evictIdle(() => engine.stats().adapterBytes, this.options.adapterMemoryBytes);
      this.scanProblem = null;
    } catch (error) {
      this.scanProblem = `the work list cannot be read: ${error instanceof Error ? error.message : String(error)}`;
      this.parts.logger.error({ err: error }, 'the work list cannot be read; trying again at the next poll');
    }
  }

  /** Requests to the plain base are answered by whoever holds its lease under their contract: two workers do not both work. */
  private async holdsBase(session: Session): Promise<boolean> {
    const { baseDigest, numericsId } = this.parts.engine.info();
    const resource = `base:${baseDigest}@${numericsId}`;
    if (session.leases.leases.some((lease) => lease.resource === resource)) return true;
    return (await session.leases.claim(resource)) !== null;
  }
}

/** Claims that are facts of the log, too. */
class RecordedLeases {
  constructor(
    private readonly leases: Leases,
    private readonly workerId: string,
    private readonly events: EventStore,
  ) {}

  async claim(resource: string): Promise<Lease | null> {
    const lease = await this.leases.claim(resource);
    if (lease === null) return null;
    const payload = { workerId: this.workerId, resource, epoch: lease.epoch.toString() };
    await this.events.append(workerItem(this.workerId, [{ type: 'LeaseClaimed', payload }], Date.now()));
    return lease;
  }

  release(resource: string): Promise<void> {
    return this.leases.release(resource);
  }
}

function groupByAdapter(rows: readonly OpenRequest[]): Map<string | null, OpenRequest[]> {
  const groups = new Map<string | null, OpenRequest[]>();
  for (const row of rows) {
    const group = groups.get(row.adapterId);
    if (group === undefined) groups.set(row.adapterId, [row]);
    else group.push(row);
  }
  return groups;
}
