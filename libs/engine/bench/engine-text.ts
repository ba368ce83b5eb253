import type { EngineReport } from './engine-report';

const percent = (share: number): string => `${(100 * share).toFixed(0)} %`.padStart(6);
const cell = (value: number | string, width: number): string => String(value).padStart(width);
const ms = (value: number): string => `${value.toFixed(1)} ms`;
const megabytes = (bytes: number): string => `${(bytes / 1e6).toFixed(2)} MB`;

/** A table under its head; nothing where nothing was measured. */
const section = (head: string, rows: string[]): string[] => (rows.length === 0 ? [] : ['', head, ...rows]);

/** The report for people: each figure beside the ceiling that it is measured against. */
export function engineText(report: EngineReport): string {
  const { machine, adapter, grouped } = report;
  const kernels = Object.entries(report.kernels).map(([numerics, path]) => `${numerics} on ${path}`);
  const lines = [
    `${report.model}; ${kernels.join(', ')}; ${report.threads} threads`,
    `ceilings: ${machine.fmaGflops} GFLOP/s fp32 multiply-add, ${machine.bf16Gflops ?? 'no'} GFLOP/s bf16 dots, ${machine.readGBs} GB/s read`,
    ...section(
      'linear        rows    dIn    dOut   GFLOP/s  of peak (the lower of FMA and read)  of read',
      report.linear.map(
        (row) =>
          `  ${row.numerics.padEnd(8)} ${cell(row.rows, 7)} ${cell(row.dIn, 6)} ${cell(row.dOut, 7)} ${cell(row.gflops, 9)} ${percent(row.ofPeak)} ${percent(row.ofRead).padStart(37)}`,
      ),
    ),
    ...section(
      'decode        rows  adapters  tokens/s  of ceiling',
      report.decode.map(
        (row) =>
          `  ${row.numerics.padEnd(8)} ${cell(row.rows, 7)} ${cell(row.adapters, 9)} ${cell(row.tokensPerS, 9)} ${percent(row.ofCeiling)}`,
      ),
    ),
    ...section(
      'training  adapters  rank  sequences  tokens/s  of ceiling  of one adapter',
      report.training.map((row) =>
        `  ${row.numerics.padEnd(8)} ${cell(row.adapters, 7)} ${cell(row.rank, 5)} ${cell(`${row.sequences} x ${row.tokens}`, 10)} ${cell(row.tokensPerS, 9)} ${percent(row.ofCeiling).padStart(10)} ${row.ofOneAdapter === null ? '' : percent(row.ofOneAdapter).padStart(14)}`.trimEnd(),
      ),
    ),
    '',
  ];
  if (grouped !== null) {
    lines.push(
      `grouped: ${grouped.tokensPerS} tokens/s against ${grouped.ungroupedTokensPerS} one by one: ${grouped.ratio} of ${grouped.ideal} by FLOPs`,
    );
  }
  if (adapter !== null) {
    lines.push(
      `adapter: create ${ms(adapter.createMs)}, first token ${ms(adapter.firstTokenMs)}, restore ${ms(adapter.restoreMs)}`,
      `publish ${megabytes(adapter.publishedBytes)}: ${ms(adapter.publishMs)}; write + fsync + hash alone ${ms(adapter.writeMs)}: ratio ${adapter.publishRatio.toFixed(2)}`,
      `memory of a training adapter: ${megabytes(adapter.bytes)}, by formula ${megabytes(adapter.bytesByFormula)}: ratio ${(adapter.bytes / adapter.bytesByFormula).toFixed(3)}`,
    );
  }
  const parts = Object.entries(report.partSeconds).map(([part, seconds]) => `${part} ${seconds.toFixed(0)}`);
  lines.push(`${report.seconds} s (${parts.join(', ')})`);
  lines.push(report.leftOut.length === 0 ? 'nothing was left out' : `left out: ${report.leftOut.join('; ')}`);
  return lines.join('\n');
}
