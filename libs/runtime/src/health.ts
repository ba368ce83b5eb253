export interface HealthReport {
  ok: boolean;
  /** Name of the check -> `ok`, or what is wrong in words. */
  checks: Record<string, string>;
}

/** Resolves when the part works; throws an error whose message tells an operator what is wrong. */
export type HealthCheck = () => void | Promise<void>;

const CHECK_TIMEOUT_MS = 2000;

/**
 * Readiness and liveness of one process. A part registers a readiness check under a name; `draining` makes the process
 * unready for good, the first step of every shutdown. Liveness fails only for what a restart would heal.
 */
export class Health {
  private readonly readinessChecks = new Map<string, HealthCheck>();
  private readonly livenessChecks = new Map<string, HealthCheck>();
  private isDraining = false;

  /** @returns a function that removes the check. */
  readiness(name: string, check: HealthCheck): () => void {
    return register(this.readinessChecks, name, check);
  }

  liveness(name: string, check: HealthCheck): () => void {
    return register(this.livenessChecks, name, check);
  }

  draining(): void {
    this.isDraining = true;
  }

  async ready(): Promise<HealthReport> {
    if (this.isDraining) return { ok: false, checks: { process: 'shutting down' } };
    return run(this.readinessChecks);
  }

  live(): Promise<HealthReport> {
    return run(this.livenessChecks);
  }
}

function register(checks: Map<string, HealthCheck>, name: string, check: HealthCheck): () => void {
  if (checks.has(name)) throw new Error(`health check "${name}" is registered twice`);
  checks.set(name, check);
  return () => checks.delete(name);
}

async function run(checks: ReadonlyMap<string, HealthCheck>): Promise<HealthReport> {
  const results = await Promise.all(
    [...checks].map(async ([name, check]): Promise<[string, string]> => [name, await outcome(check)]),
  );
  return { ok: results.every(([, text]) => text === 'ok'), checks: Object.fromEntries(results) };
}

async function outcome(check: HealthCheck): Promise<string> {
  let timer: NodeJS.Timeout | undefined;
  const late = new Promise<string>((resolve) => {
    timer = setTimeout(() => resolve(`no answer within ${CHECK_TIMEOUT_MS} ms`), CHECK_TIMEOUT_MS);
  });
  try {
    return await Promise.race([Promise.resolve(check()).then(() => 'ok'), late]);
  } catch (error) {
    return error instanceof Error ? error.message : String(error);
  } finally {
    clearTimeout(timer);
  }
}
