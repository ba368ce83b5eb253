import { parseArgs } from 'node:util';

/** A command line's options by name: a switch, or a text with its default. */
export type OptionTable = Record<string, { type: 'boolean' } | { type: 'string'; default?: string }>;

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
  json: { type: 'boolean' },
  quick: { type: 'boolean' },
  'budget-s': { type: 'string', default: '600' },
  seed: { type: 'string', default: '1' },
} as const satisfies OptionTable;

/** @throws Error naming an option that does not exist, or one without its value */
export function readOptions(table: OptionTable, args: string[]): GivenOptions {
  const { values } = parseArgs({ options: table, args, strict: true, allowPositionals: false });
  const given = values as Record<string, string | boolean | undefined>;
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

/** Runs a benchmark's main function: its report as JSON or text; a refusal in one line and exit code 2. */
export function runBench(main: (args: string[]) => Promise<void>): void {
  main(process.argv.slice(2)).catch((error: unknown) => {
    console.error(error instanceof Error ? error.message : error);
    process.exitCode = 2;
  });
}
