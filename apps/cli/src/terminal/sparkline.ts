const BARS = '▁▂▃▄▅▆▇█';

/** A curve of values in [0, 1] in `width` characters; each shows the mean of its share of the values. */
export function sparkline(values: readonly number[], width: number): string {
  if (values.length === 0) return '';
  const columns = Math.min(width, values.length);
  return Array.from({ length: columns }, (_, c) => {
    const from = Math.floor((c * values.length) / columns);
    const to = Math.max(from + 1, Math.floor(((c + 1) * values.length) / columns));
    const mean = values.slice(from, to).reduce((a, b) => a + b, 0) / (to - from);
    const level = Math.round(Math.min(1, Math.max(0, mean)) * (BARS.length - 1));
    return BARS[level];
  }).join('');
}
