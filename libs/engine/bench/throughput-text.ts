import type { ThroughputReport, ThroughputRow } from './throughput';

const cell = (value: number | string, width = 9): string => String(value).padStart(width);

const line = (row: ThroughputRow): string =>
  [
    row.env.padEnd(8),
    cell(row.n, 3),
    cell(row.makespanS),
    cell(row.boundS),
    cell(row.machineBoundS),
    cell(row.meanS),
    cell(row.firstS),
    cell(row.stepS),
    cell(row.spread),
    cell(row.rowsPerDecodeStep),
    `  ${row.rewards.map((reward) => reward.toFixed(2)).join(' ')}`,
  ].join(' ');

/** The report for people: the table, then what the ratios are measured against. */
export function throughputText(report: ThroughputReport): string {
  const ratios = (['plain', 'agentic'] as const).flatMap((env) => {
    const ratio = report.ratio[env];
    const bound = report.bound[env];
    if (ratio === null || bound === null) return [];
    const share = (of: number) => `${((100 * ratio) / of).toFixed(0)} % of it`;
    return [
      `${env}: ratio ${ratio}`,
      `  bound of own phases ${bound.ownPhases}: ${share(bound.ownPhases)} (this engine's own sampling and training times; what is missing is lost between them)`,
      `  bound of the machine ${bound.machine}: ${share(bound.machine)} (an engine at the ceilings at every N; one that is slow at N = 1 can exceed it)`,
    ];
  });
  const { machine } = report;
  return [
    `${report.model}; ${report.numerics}`,
    `waits of tool calls: ${report.waits}`,
    'env       N  makespan       own   machine      mean     first      step    spread rows/step   rewards (seedling)',
    ...report.rows.map(line),
    'seconds; own: the shortest makespan of this engine with full batches, never idle, no step shorter than one rollout, its training and waits;',
    `machine: that of an engine at the ceilings of this run, ${machine.fmaGflops} GFLOP/s multiply-adds, ${machine.bf16Gflops ?? 'no'} bf16 dots, ${machine.readGBs} GB/s read;`,
    'spread: latest over earliest finish of those that began together; rows/step: tokens drawn per sampling step',
    ...ratios,
    `cold start of a process of its own to its first token: ${report.coldStartS ?? 'left out'} s`,
    `bytes equal across all N: ${report.equalBytes ? 'yes' : 'NO'}`,
    `${report.seconds} s`,
    report.leftOut.length === 0 ? 'nothing was left out' : `left out: ${report.leftOut.join('; ')}`,
  ].join('\n');
}
