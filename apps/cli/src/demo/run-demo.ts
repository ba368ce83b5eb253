import { announce, untilSignal } from '../commands/up.command';
import { isJson } from '../terminal/print';
import { startDemoPlatform, type DemoPlatform } from './demo-platform';
import { DemoTenant } from './demo-tenant';
import { planDemo } from './plan';
import { Progress } from './progress';
import { proveAlone, proveChain, proveRederived, proveRegistry } from './proofs';
import { demoText, judge, type DemoReport, type TenantReport } from './report';
import { untilTrained } from './until-trained';

export interface DemoOptions {
  tenants: number;
  /** null = the plan's own. */
  steps: number | null;
  keep: boolean;
}

/** The whole demo. Returns the exit code: 0 only if every reward passed (where judged) and every proof holds. */
export async function runDemo(options: DemoOptions): Promise<number> {
  const say = (line: string) => process.stderr.write(`${line}\n`);
  const platform = await startDemoPlatform('demo', say);
  let stopRequested = false;
  let failed = true;
  const onSignal = () => {
    stopRequested = true;
    say('stopping');
    void platform.end(options.keep).finally(() => process.exit(1));
  };
  process.on('SIGINT', onSignal);
  process.on('SIGTERM', onSignal);
  try {
    const report = await teachAndProve(platform, options, say);
    process.stdout.write(isJson() ? `${JSON.stringify(report, null, 2)}\n` : demoText(report));
    if (options.keep) {
      process.off('SIGINT', onSignal).off('SIGTERM', onSignal);
      if (!isJson()) await announce(platform);
      await untilSignal();
    }
    failed = judge(report).length > 0;
    return failed ? 1 : 0;
  } finally {
    if (failed) say(`what happened stands in ${platform.folder.logs}`);
    if (!stopRequested) await platform.end(options.keep || failed);
  }
}

async function teachAndProve(
  platform: DemoPlatform,
  options: DemoOptions,
  say: (line: string) => void,
): Promise<DemoReport> {
  const startedAtMs = Date.now();
  const plan = planDemo(options);
  say(`the base is hot; ${plan.tenants.length} tenants begin`);
  const tenants = await Promise.all(plan.tenants.map((tenant) => DemoTenant.create(platform, tenant)));
  const rewardStart = await Promise.all(tenants.map((tenant) => tenant.measure(null, plan.heldOutWords)));

  const progress = new Progress(tenants.map((tenant) => tenant.plan.name));
  await Promise.all(tenants.map((tenant) => tenant.produce()));
  const views = await untilTrained(tenants, (seen) => progress.show(seen));
  progress.show(views, true);
  const trainingSeconds = (Date.now() - startedAtMs) / 1000;
  await Promise.all(tenants.map((tenant, i) => tenant.untilPublished(views[i]!.latestVersion ?? 1)));

  const latest = tenants.map((tenant) => `${tenant.experiment.adapterName}@latest`);
  const rewardEnd = await Promise.all(tenants.map((tenant, i) => tenant.measure(latest[i]!, plan.heldOutWords)));
  const answers = await Promise.all(tenants.map((tenant, i) => tenant.sample(latest[i]!, [plan.commonPrompt], 0)));
  const reports: TenantReport[] = [];
  for (const [i, tenant] of tenants.entries()) {
    const { versions } = await tenant.versions();
    reports.push({
      name: tenant.plan.name,
      skill: tenant.plan.skill,
      rank: tenant.plan.experiment.rank ?? 0,
      steps: views[i]!.steps.length,
      rewardStart: rewardStart[i]!,
      rewardEnd: rewardEnd[i]!,
      versions: versions.length,
      digest: versions.at(-1)?.stateDigest ?? '',
    });
  }

  say('proving');
  const chosen = tenants[tenants.length - 1]!;
  const alone = await proveAlone(platform, chosen);
  const rederived = await proveRederived(platform, tenants[0]!);
  const registry = await proveRegistry(platform, chosen);
  const chain = await proveChain(platform);
  return {
    tenants: reports,
    judged: plan.judged,
    commonPrompt: {
      prompt: plan.commonPrompt,
      answers: Object.fromEntries(tenants.map((tenant, i) => [tenant.plan.name, answers[i]?.[0] ?? ''])),
    },
    proofs: {
      aloneEqualsTogether: alone.equal,
      versionRederived: rederived.equal,
      chainVerified: chain.ok,
      resolveOverNats: registry.resolveOverNats,
      lineage: registry.lineage,
    },
    evidence: { alone: { tenant: chosen.plan.name, ...alone }, rederived, chain, registry },
    trainingSeconds,
    seconds: (Date.now() - startedAtMs) / 1000,
  };
}
