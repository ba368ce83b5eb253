import { DomainError } from '#hotbed/contracts';
import { createServer, type Server } from 'node:http';
import { loadConfig, ConfigError } from './load-config';
import { Health } from './health';
import type { AppHost, CreateApp, HostedApp } from './hosted-app';
import { createLogger } from './logger';
import { createMetrics } from './metrics';
import { processConfigShape, toProcessConfig, type ProcessConfig } from './process-config';
import { shutDown } from './shutdown';

/**
 * The body of every `main.ts`: one app alone in its process. SIGTERM and SIGINT make it unready, stop it within
 * HOTBED_SHUTDOWN_TIMEOUT_MS and end the process with 0, or with 1 if something was left unfinished. With HOTBED_OPS_PORT
 * it answers /healthz, /readyz and /metrics there.
 */
export async function runApp(name: string, createApp: CreateApp): Promise<void> {
  try {
    const { config, host, app } = await prepare(name, createApp);
    const started = host.health.readiness('start', () => {
      throw new Error('starting');
    });
    const ops = config.opsPort === null ? undefined : await serveOps(host, config.opsHost, config.opsPort);
    stopOnSignal(app, host, ops, config.shutdownTimeoutMs);
    await app.start();
    started();
    host.logger.info('started');
  } catch (error) {
    if (error instanceof ConfigError) process.stderr.write(`${error.message}\n`);
    else process.stderr.write(`${name} cannot start: ${startProblem(error)}\n`);
    process.exit(1);
  }
}

/** Reads the process's and the app's configuration; what is wrong in either is reported together. @throws ConfigError */
async function prepare(
  name: string,
  createApp: CreateApp,
): Promise<{ config: ProcessConfig; host: AppHost; app: HostedApp }> {
  const problems: ConfigError['problems'][number][] = [];
  const collect = (error: unknown): void => {
    if (!(error instanceof ConfigError)) throw error;
    for (const problem of error.problems) {
      if (!problems.some((known) => known.variable === problem.variable)) problems.push(problem);
    }
  };
  let config: ProcessConfig | null = null;
  try {
    config = loadConfig(processConfigShape, toProcessConfig);
  } catch (error) {
    collect(error);
  }
  const logger = createLogger({ name, level: config?.logLevel ?? 'info' });
  const host: AppHost = { logger, metrics: createMetrics({ app: name }), health: new Health() };
  let app: HostedApp | null = null;
  try {
    app = await createApp(process.env, host);
  } catch (error) {
    collect(error);
  }
  if (config === null || app === null) throw new ConfigError(problems);
  return { config, host, app };
}

/** An expected failure says in one line what to do; a bug shows where it is. */
function startProblem(error: unknown): string {
  if (error instanceof DomainError) return error.message;
  return error instanceof Error ? (error.stack ?? error.message) : String(error);
}

function stopOnSignal(app: HostedApp, host: AppHost, ops: Server | undefined, timeoutMs: number): void {
  let stopping = false;
  const stop = (signal: NodeJS.Signals): void => {
    if (stopping) return;
    stopping = true;
    host.logger.info({ signal }, 'stopping');
    host.health.draining();
    shutDown(
      [
        { name: app.name, run: () => app.stop() },
        { name: 'ops', run: () => void ops?.close() },
      ],
      timeoutMs,
      host.logger,
    ).then(
      () => process.exit(0),
      () => process.exit(1),
    );
  };
  process.on('SIGTERM', stop);
  process.on('SIGINT', stop);
}

async function serveOps(host: AppHost, address: string, port: number): Promise<Server> {
  const server = createServer((request, response) => {
    void answer(host, request.url ?? '/').then(({ status, type, body }) => {
      response.writeHead(status, { 'content-type': type });
      response.end(body);
    });
  });
  await new Promise<void>((resolve, reject) => {
    server.once('error', reject);
    server.listen(port, address, resolve);
  });
  return server;
}

async function answer(host: AppHost, url: string): Promise<{ status: number; type: string; body: string }> {
  if (url === '/metrics') return { status: 200, type: host.metrics.contentType, body: await host.metrics.metrics() };
  if (url !== '/healthz' && url !== '/readyz') return { status: 404, type: 'text/plain', body: 'not found\n' };
  const report = await (url === '/healthz' ? host.health.live() : host.health.ready());
  return { status: report.ok ? 200 : 503, type: 'application/json', body: `${JSON.stringify(report)}\n` };
}
