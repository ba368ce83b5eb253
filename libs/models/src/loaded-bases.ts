import { DomainError, InvalidInput, Unavailable, type EventStore } from '#hotbed/contracts';
import { openModelFolder, type ModelFolder } from './model-folder';

/** A base as a worker reported it. */
export interface LoadedBase {
  /** Last part of the worker's folder: for people, and to ask by. */
  name: string;
  baseDigest: string;
  /** SHA-256 of its tokenizer.json; null = it has none. */
  tokenizerDigest: string | null;
  numericsId: string;
  contextLength: number;
  workerId: string;
}

const PAGE = 500;
/** Under which contract a base is meant that is loaded under several, unless the caller says. */
const DEFAULT_NUMERICS = 'f32-1';

/**
 * Which bases workers have loaded, from their events, and the text side of the one whose folder this process was given.
 * Folded in memory from the log on demand: there are few workers, and nothing here outlives a restart.
 */
export class Bases {
  private position = 0n;
  private readonly known = new Map<string, LoadedBase>();
  private readonly running = new Map<string, LoadedBase>();
  private readonly identities = new Map<string, bigint>();
  private readonly dead = new Set<bigint>();
  private folder: Promise<ModelFolder> | null = null;
  private catchingUp: Promise<void> = Promise.resolve();

  /**
   * @param folderPath model folder in Hugging Face layout, the one that the workers load
   * @param isAlive whether the worker with this identity still lives: a killed one leaves no WorkerStopped
   */
  constructor(
    private readonly store: EventStore,
    private readonly folderPath: string,
    private readonly isAlive: (identity: bigint) => Promise<boolean> = () => Promise.resolve(true),
  ) {}

  /** Bases of workers that live, one entry per digest and numerics id. */
  async loaded(): Promise<LoadedBase[]> {
    await this.catchUp();
    const live = new Map<string, LoadedBase>();
    for (const [workerId, base] of this.running) {
      if (await this.lives(this.identities.get(workerId))) live.set(baseIdentity(base), base);
    }
    return [...live.values()];
  }

  /** An identity that died never lives again; a worker that lost its connection comes back with another. */
  private async lives(identity: bigint | undefined): Promise<boolean> {
    if (identity === undefined) return true;
    if (this.dead.has(identity)) return false;
    const isAlive = await this.isAlive(identity);
    if (!isAlive) this.dead.add(identity);
    return isAlive;
  }

  /**
   * The base that a caller means. @param ref name or digest, or either with `@` and a numerics id; null = the only one
   * that is loaded. One that is loaded under several ids means f32-1, unless an id is named.
   * @throws InvalidInput naming `field`
   */
  async resolve(ref: string | null, field = 'base'): Promise<LoadedBase> {
    const loaded = await this.loaded();
    const matching = ref === null ? loaded : loaded.filter((base) => isNamed(base, ref));
    const base = matching.length === 1 ? matching[0] : ofOneBase(matching);
    if (base !== undefined) return base;
    const list = loaded.length === 0 ? 'no worker has loaded a base' : `loaded: ${loaded.map(describe).join(', ')}`;
    const wish = ref === null ? 'name the base by name or digest' : `no running worker has exactly one base "${ref}"`;
    throw new InvalidInput([{ path: field, message: `${wish}; ${list}` }]);
  }

  /**
   * The text side of a base: this process's folder, if its tokenizer.json is byte for byte the one that the base's
   * newest worker has. @throws Unavailable `tokenizer_not_available` otherwise
   */
  async textOf(baseDigest: string): Promise<ModelFolder> {
    const folder = await this.openFolder();
    const isIts = (): boolean => this.known.get(baseDigest)?.tokenizerDigest === folder.tokenizerDigest;
    if (!isIts()) await this.catchUp();
    if (isIts()) return folder;
    throw new Unavailable('tokenizer_not_available', otherFolder(folder, baseDigest, this.known.get(baseDigest)), {
      retryAfterMs: 5_000,
    });
  }

  /** Opens the folder now, so that a wrong one is noticed at start. @throws DomainError `model_folder_invalid` */
  openFolder(): Promise<ModelFolder> {
    this.folder ??= openModelFolder(this.folderPath).catch((error: unknown) => {
      this.folder = null;
      throw error instanceof DomainError ? error : new Unavailable('model_folder', String(error), { cause: error });
    });
    return this.folder;
  }

  private catchUp(): Promise<void> {
    this.catchingUp = this.catchingUp.catch(() => undefined).then(() => this.readOn());
    return this.catchingUp;
  }

  private async readOn(): Promise<void> {
    for (;;) {
      const events = await this.store.readAll({ after: this.position, limit: PAGE, categories: ['worker'] });
      for (const event of events) {
        if (event.type === 'WorkerStarted') {
          this.identities.set(event.payload.workerId, BigInt(event.payload.identity));
        }
        if (event.type === 'BaseModelLoaded') {
          const { name, baseDigest, tokenizerDigest = null, numericsId, contextLength, workerId } = event.payload;
          const base = { name, baseDigest, tokenizerDigest, numericsId, contextLength, workerId };
          this.known.set(baseDigest, base);
          this.running.set(workerId, base);
        }
        if (event.type === 'WorkerStopped') this.running.delete(event.payload.workerId);
        this.position = event.globalPosition;
      }
      if (events.length < PAGE) return;
    }
  }
}

function otherFolder(folder: ModelFolder, baseDigest: string, base: LoadedBase | undefined): string {
  if (base === undefined) return `no worker has ever loaded base ${baseDigest}; start one with its folder`;
  const theirs =
    base.tokenizerDigest === null
      ? `base ${describe(base)} was loaded without a tokenizer.json`
      : `tokenizer.json of base ${describe(base)} has SHA-256 ${base.tokenizerDigest}`;
  return `HOTBED_BASE_MODEL is ${folder.path}, whose tokenizer.json has SHA-256 ${folder.tokenizerDigest}; ${theirs}; start with the folder that its worker has`;
}

/** Weights and contract: what an adapter belongs to. */
export function baseIdentity(base: Pick<LoadedBase, 'baseDigest' | 'numericsId'>): string {
  return `${base.baseDigest}@${base.numericsId}`;
}

function isNamed(base: LoadedBase, ref: string): boolean {
  const { name, baseDigest, numericsId } = base;
  return [name, baseDigest, `${name}@${numericsId}`, baseIdentity(base)].includes(ref);
}

/** Entries that differ in their contract alone are one base. */
function ofOneBase(matching: readonly LoadedBase[]): LoadedBase | undefined {
  if (new Set(matching.map((base) => base.baseDigest)).size !== 1) return undefined;
  return matching.find((base) => base.numericsId === DEFAULT_NUMERICS);
}

function describe(base: LoadedBase): string {
  return `${base.name}@${base.numericsId} (${base.baseDigest.slice(0, 12)})`;
}
