import { table } from '../terminal/table';
import type { Rederived } from '../platform/rederive';
import type { RegistryAnswers } from './proofs';
import type { Comparison } from './rollout-record';

/** A reward must begin at most here and end at least there. */
export const START_AT_MOST = 0.25;
export const END_AT_LEAST = 0.9;
const DIGEST_SHOWN = 16;

export interface TenantReport {
  name: string;
  skill: string;
  rank: number;
  steps: number;
  /** Exact match at temperature 1 on words that never were in the tenant's stream. */
  rewardStart: number;
  rewardEnd: number;
  versions: number;
  /** Of the newest version's whole training state. */
  digest: string;
}

export interface DemoReport {
  tenants: TenantReport[];
  /** Whether rewards decide the exit code. */
  judged: boolean;
  commonPrompt: { prompt: string; answers: Record<string, string> };
  proofs: {
    aloneEqualsTogether: boolean;
    versionRederived: boolean;
    chainVerified: boolean;
    resolveOverNats: boolean;
    lineage: boolean;
  };
  evidence: {
    alone: Comparison & { tenant: string };
    rederived: Rederived;
    chain: { ok: boolean; events: string; head: string };
    registry: RegistryAnswers;
  };
  /** From the first request to the last step. */
  trainingSeconds: number;
  seconds: number;
}

/** Everything that keeps the demo from passing, in words. */
export function judge(report: DemoReport): string[] {
  const problems = Object.entries(report.proofs)
    .filter(([, holds]) => !holds)
    .map(([proof]) => `the proof ${proof} does not hold`);
  if (!report.judged) return problems;
  for (const { name, rewardStart, rewardEnd } of report.tenants) {
    if (rewardStart > START_AT_MOST) problems.push(`${name} began at ${rewardStart}, above ${START_AT_MOST}`);
    if (rewardEnd < END_AT_LEAST) problems.push(`${name} ended at ${rewardEnd}, below ${END_AT_LEAST}`);
  }
  return problems;
}

/** The report for people. */
export function demoText(report: DemoReport): string {
  const { evidence, proofs, commonPrompt } = report;
  const mark = (holds: boolean) => (holds ? 'proved' : 'FAILED');
  const problems = judge(report);
  return [
    '',
    table(
      [
        'tenant',
        'rank',
        'steps',
        'reward at start',
        'at end',
        'versions',
        'state digest',
        `answer to ${commonPrompt.prompt}`,
      ],
      report.tenants.map((t) => [
        t.name,
        t.rank,
        t.steps,
        t.rewardStart.toFixed(3),
        t.rewardEnd.toFixed(3),
        t.versions,
        t.digest.slice(0, DIGEST_SHOWN),
        commonPrompt.answers[t.name],
      ]),
    ),
    '',
    `${mark(proofs.aloneEqualsTogether)}  ${evidence.alone.tenant} run again alone in a new process: ${evidence.alone.rollouts} rollouts, ${evidence.alone.tokens} tokens and log-probabilities, final state${evidence.alone.difference === null ? ': every bit equal' : `: ${evidence.alone.difference}`}`,
    `${mark(proofs.versionRederived)}  version ${evidence.rederived.version} folded again from ${evidence.rederived.operations} operations, no version file: ${evidence.rederived.derived.stateDigest.slice(0, DIGEST_SHOWN)}`,
    `${mark(proofs.chainVerified)}  hash chain of ${evidence.chain.events} events, head ${evidence.chain.head}`,
    `${mark(proofs.resolveOverNats)}  registry over NATS and HTTP: latest version of ${evidence.alone.tenant}'s adapter is ${evidence.registry.version}`,
    `${mark(proofs.lineage)}  version ${evidence.registry.version} was influenced by ${evidence.registry.records} records and ${evidence.registry.rollouts} rollouts`,
    '',
    `${report.tenants.length} adapters on one hot base in ${report.trainingSeconds.toFixed(0)} s, everything in ${report.seconds.toFixed(0)} s${report.judged ? '' : ' (rewards reported, not judged)'}`,
    ...problems.map((problem) => `FAILED: ${problem}`),
    '',
  ].join('\n');
}
