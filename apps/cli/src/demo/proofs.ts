import { spawn } from 'node:child_process';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { CommandReply } from '#hotbed/contracts';
import { verifyDatabase } from '#hotbed/event-store';
import { Broker, RpcClient } from '#hotbed/messaging';
import { segment } from '../api/api-client';
import { rederive, type Rederived } from '../platform/rederive';
import { readHead } from '../platform/read-head';
import type { DemoPlatform } from './demo-platform';
import type { DemoTenant } from './demo-tenant';
import { compareExperiments, readExperiment, type Comparison, type ExperimentRecord } from './rollout-record';

/** (a) The same records and configuration on a platform of their own, in a new process: every bit must be equal. */
export async function proveAlone(platform: DemoPlatform, tenant: DemoTenant): Promise<Comparison> {
  const { experimentId, adapterId } = tenant.experiment;
  const together = await readExperiment(platform.events, experimentId, adapterId);
  const folder = mkdtempSync(join(tmpdir(), 'hotbed-alone-'));
  try {
    const planFile = join(folder, 'plan.json');
    writeFileSync(planFile, JSON.stringify({ ...tenant.plan, records: await recordsOf(platform, tenant) }), {
      mode: 0o600,
    });
    const main = join(__dirname, '..', 'main.js');
    const output = await runToEnd(process.execPath, ['--enable-source-maps', main, 'demo', '--alone', planFile]);
    return compareExperiments(together, JSON.parse(output) as ExperimentRecord);
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}

/** The records as the log has them, in stream order. */
async function recordsOf(platform: DemoPlatform, tenant: DemoTenant): Promise<unknown[]> {
  const { dataStreamId } = tenant.experiment;
  const events = await platform.events.readStream(`data-stream:${dataStreamId}`);
  return events.flatMap((event) => {
    if (event.type !== 'RecordReceived' || event.payload.identity.kind !== 'key') return [];
    const { prompt, answer } = event.payload.content;
    return [{ key: event.payload.identity.key, content: { prompt, answer } }];
  });
}

function runToEnd(command: string, args: readonly string[]): Promise<string> {
  return new Promise((resolve, reject) => {
    const child = spawn(command, args, { stdio: ['ignore', 'pipe', 'pipe'] });
    let output = '';
    let errors = '';
    child.stdout.setEncoding('utf8').on('data', (text: string) => (output += text));
    child.stderr.setEncoding('utf8').on('data', (text: string) => (errors += text));
    child.on('error', reject);
    child.on('close', (code) => (code === 0 ? resolve(output) : reject(new Error(`the run alone failed: ${errors}`))));
  });
}

/** (b) A version folded again from its operations, with an empty folder where version files would be. */
export async function proveRederived(platform: DemoPlatform, tenant: DemoTenant): Promise<Rederived> {
  const { versions } = await tenant.versions();
  const middle = versions[Math.floor(versions.length / 2)];
  if (middle === undefined) throw new Error(`${tenant.plan.name} has no version`);
  const noFiles = mkdtempSync(join(tmpdir(), 'hotbed-no-files-'));
  try {
    return await rederive(middle.adapterId, middle.version, {
      databaseUrl: platform.databaseUrl,
      blobFolder: noFiles,
      dataDir: platform.folder.root,
    });
  } finally {
    rmSync(noFiles, { recursive: true, force: true });
  }
}

/** (c) The hash chain, against the head that was printed. */
export async function proveChain(platform: DemoPlatform): Promise<{ ok: boolean; events: string; head: string }> {
  const head = await readHead(platform);
  const [position = '0', hash = ''] = head.split(':');
  const result = await verifyDatabase(platform.databaseUrl, { expectHead: { position: BigInt(position), hash } });
  if (!result.ok) return { ok: false, events: result.problem.position.toString(), head: result.problem.message };
  return { ok: true, events: result.head.position.toString(), head };
}

export interface RegistryAnswers {
  /** "Latest version of X", asked over NATS as the tenant's own reader, equals the answer over HTTP. */
  resolveOverNats: boolean;
  version: number;
  /** "Which records influenced version Y": every record is one of the tenant's own stream. */
  lineage: boolean;
  records: number;
  rollouts: number;
}

/** (d) The registry's answers, over both doors. */
export async function proveRegistry(platform: DemoPlatform, tenant: DemoTenant): Promise<RegistryAnswers> {
  const adapter = tenant.experiment.adapterName;
  const overNats = await resolveOverNats(platform, tenant, adapter);
  const overHttp = await tenant.api.get<CommandReply<'registry', 'resolve'>>(
    `/v1/adapters/${segment(adapter)}/resolve`,
    {
      ref: 'latest',
    },
  );
  const { version } = overHttp.version;
  const path = `/v1/adapters/${segment(adapter)}/versions/${version}/lineage`;
  const lineage = await tenant.api.get<CommandReply<'registry', 'lineage-of-version'>>(path, { limit: 1000 });
  const own = await platform.events.readStream(`data-stream:${tenant.experiment.dataStreamId}`);
  const ownRecords = new Set(own.flatMap((e) => (e.type === 'RecordReceived' ? [e.payload.recordId] : [])));
  return {
    resolveOverNats: JSON.stringify(overNats.version) === JSON.stringify(overHttp.version),
    version,
    lineage:
      lineage.influences.length > 0 &&
      lineage.influences.every((i) => i.recordId !== null && ownRecords.has(i.recordId) && i.rollouts.length > 0),
    records: lineage.distinctRecords,
    rollouts: lineage.distinctRollouts,
  };
}

async function resolveOverNats(platform: DemoPlatform, tenant: DemoTenant, adapter: string) {
  const credentials = await platform.broker.tenant(tenant.tenantId);
  const broker = await Broker.connect({
    url: platform.natsUrl,
    ...(credentials?.reader ?? {}),
    name: 'internal-service',
  });
  try {
    const registry = new RpcClient(broker);
    return await registry.request<CommandReply<'registry', 'resolve'>>(tenant.tenantId, 'registry', 'resolve', {
      adapter,
      ref: 'latest',
    });
  } finally {
    await broker.close();
  }
}
