import { parseArgs } from 'node:util';

/** One option of a command line: a switch, or a text with its default; `help` is what `--help` says of it. */
export type Option = { help: string } & ({ type: 'boolean' } | { type: 'string'; default?: string });
export type OptionTable = Record<string, Option>;

/** What a benchmark is called, what it does, and what it takes: parsed from and printed from one table. */
export interface BenchCommand {
  name: string;
  what: string;
  options: OptionTable;
}

export interface GivenOptions {
  has(name: string): boolean;
  text(name: string): string | null;
  /** @throws Error naming the option when its value is no whole number of at least `least` */
  whole(name: string, least: number): number;
  /** @throws Error naming the option when its value is no number of at least 0 */
  number(name: string): number;
  /** Comma-separated whole numbers of at least 1. */
  wholes(name: string): number[];
}

/** What every benchmark takes. */
export const COMMON_OPTIONS = {
  json: { type: 'boolean', help: 'print the report as one JSON object' },
  'budget-s': { type: 'string', default: '600', help: 'seconds; what does not fit is left out and named' },
  seed: { type: 'string', default: '1', help: 'of everything that is drawn' },
} as const satisfies OptionTable;

/** Of those that measure on a large base. */
export const MODEL_OPTIONS = {
  quick: { type: 'boolean', help: 'a tiny base and small sizes: shows that all of it runs, measures nothing' },
  model: { type: 'string', help: 'folder of a Hugging Face model, instead of random weights' },
} as const satisfies OptionTable;

/** @throws Error naming an option that does not exist (and those that do), or one without its value */
export function readOptions(table: OptionTable, args: string[]): GivenOptions {
  const given = parsed(table, args);
  const text = (name: string): string | null => {
    const value = given[name];
    return typeof value === 'string' ? value : null;
  };
  const toNumber = (name: string, value: string | null): number => {
    const number = value === null || value.trim() === '' ? NaN : Number(value);
    if (!Number.isFinite(number) || number < 0) throw new Error(`--${name}: expected a number of at least 0`);
    return number;
  };
  const toWhole = (name: string, value: string | null, least: number): number => {
    const number = Number(value ?? NaN);
    if (!Number.isSafeInteger(number) || number < least) {
      throw new Error(`--${name}: expected a whole number of at least ${least}`);
    }
    return number;
  };
  return {
    has: (name) => given[name] === true,
    text,
    whole: (name, least) => toWhole(name, text(name), least),
    number: (name) => toNumber(name, text(name)),
    wholes: (name) => (text(name) ?? '').split(',').map((part) => toWhole(name, part, 1)),
  };
}

function parsed(table: OptionTable, args: string[]): Record<string, string | boolean | undefined> {
  try {
    const { values } = parseArgs({ options: table, args, strict: true, allowPositionals: false });
    return values;
  } catch (error) {
    const known = [...Object.keys(table), 'help'].map((name) => `--${name}`).join(', ');
    throw new Error(`${error instanceof Error ? error.message : String(error)}; known options: ${known}`, {
      cause: error,
    });
  }
}

/** What `--help` prints: every option with its default. */
export function helpText({ name, what, options }: BenchCommand): string {
  const lines = Object.entries(options).map(([option, of]) => {
    const fallback = of.type === 'string' && of.default !== undefined ? ` (default ${of.default})` : '';
    return [`--${option}${of.type === 'string' ? ' <value>' : ''}`, `${of.help}${fallback}`] as const;
  });
  lines.push(['--help', 'print this and measure nothing']);
  const width = Math.max(...lines.map(([option]) => option.length));
  return [
    `npm run -s ${name} -- [options]`,
    what,
    '',
    ...lines.map(([option, help]) => `  ${option.padEnd(width)}  ${help}`),
  ].join('\n');
}

/** Runs a benchmark; `--help` prints its options; a refusal is one line and exit code 2. */
export function runBench(command: BenchCommand, main: (options: GivenOptions) => Promise<void>): void {
  const args = process.argv.slice(2);
  const run = async () => {
    if (args.includes('--help')) console.log(helpText(command));
    else await main(readOptions(command.options, args));
  };
  run().catch((error: unknown) => {
    console.error(error instanceof Error ? error.message : error);
    process.exitCode = 2;
  });
}
