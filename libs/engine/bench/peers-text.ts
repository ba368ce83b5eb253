import type { PeersReport, TrainingComparison } from './peers';

const speed = (value: number | null): string => (value === null ? 'not measured' : `${value} tokens/s`);
const ratio = (value: number | null): string => (value === null ? 'no ratio' : `ratio ${value}`);

const training = (name: string, of: TrainingComparison | null): string =>
  of === null
    ? `${name}: left out`
    : `${name}: ours ${speed(of.tokensPerS)}; torch + PEFT float32 ${speed(of.float32TokensPerS)}, bfloat16 ${speed(of.bfloat16TokensPerS)}; ${ratio(of.ratio)}`;

/** The report for people; a ratio is ours over the best of the peer's settings. */
export function peersText(report: PeersReport): string {
  return [
    `${report.model}; ours ${report.numerics} on ${report.kernels}; ${report.threads} threads on every side`,
    `torch + PEFT: ${report.peers.torchPeft ?? 'could not be had'}`,
    `llama.cpp: ${report.peers.llamaCpp ?? 'could not be had'}`,
    training('training, 8 sequences of 256 tokens, with the optimizer step', report.training),
    training('one reinforcement-learning step, prompt 192 and eight completions of 64', report.grpo),
    ...report.decode.map(
      (of) =>
        `decode, ${of.rows} rows: ours ${speed(of.tokensPerS)}; llama.cpp ${speed(of.plainTokensPerS)}, with flash attention ${speed(of.flashTokensPerS)}; ${ratio(of.ratio)}`,
    ),
    `${report.seconds} s`,
    report.leftOut.length === 0 ? 'nothing was left out' : `left out: ${report.leftOut.join('; ')}`,
  ].join('\n');
}
