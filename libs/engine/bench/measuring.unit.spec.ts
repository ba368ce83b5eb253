import { Budget } from './budget';
import { ENGINE_BENCH } from './engine';
import { interleave, median } from './interleave';
import { quotients } from './measure';
import { type BenchCommand, COMMON_OPTIONS, MODEL_OPTIONS, helpText, readOptions } from './options';
import { PARITY_BENCH } from './parity';
import { PEERS_BENCH } from './peers';
import { THROUGHPUT_BENCH } from './throughput';

describe('the command line of a benchmark', () => {
  it('refuses an option that does not exist, by name, and says which do', () => {
    expect(() => readOptions(COMMON_OPTIONS, ['--roundz', '3'])).toThrow('--roundz');
    expect(() => readOptions(COMMON_OPTIONS, ['--roundz', '3'])).toThrow(
      'known options: --json, --budget-s, --seed, --help',
    );
    expect(() => readOptions(COMMON_OPTIONS, ['extra'])).toThrow('extra');
  });

  it('refuses a value of the wrong kind, by name', () => {
    const options = readOptions(COMMON_OPTIONS, ['--budget-s', 'soon', '--seed', '1.5']);
    expect(() => options.number('budget-s')).toThrow('--budget-s');
    expect(() => options.whole('seed', 0)).toThrow('--seed');
  });

  it('explains every option that it parses, with its default', () => {
    for (const command of [ENGINE_BENCH, THROUGHPUT_BENCH, PEERS_BENCH, PARITY_BENCH] as BenchCommand[]) {
      const text = helpText(command);
      expect(text).toContain(`npm run -s ${command.name} -- [options]`);
      for (const [name, option] of Object.entries(command.options)) {
        expect(text).toMatch(new RegExp(`  --${name} .*${option.help.slice(0, 12)}`));
        if ('default' in option) expect(text).toContain(`${option.help} (default ${option.default ?? ''})`);
      }
      expect(text.split('\n').at(-1)).toContain('--help');
    }
  });

  it('has defaults and lists', () => {
    const n = { type: 'string', default: '1,2,8', help: 'at a time' } as const;
    const options = readOptions({ ...COMMON_OPTIONS, ...MODEL_OPTIONS, n }, ['--json']);
    expect(options.has('json')).toBe(true);
    expect(options.has('quick')).toBe(false);
    expect(options.whole('budget-s', 1)).toBe(600);
    expect(options.wholes('n')).toEqual([1, 2, 8]);
  });
});

describe('interleaving', () => {
  const cases = (log: string[]) => ['a', 'b'].map((name) => ({ name, run: async () => void log.push(name) }));

  it('runs the cases in turn, every other round in reverse, and does not count the first', async () => {
    const log: string[] = [];
    const { samples, leftOut } = await interleave(cases(log), 2, Infinity);
    expect(log.join('')).toBe('baabba');
    expect(samples.map((of) => of.length)).toEqual([2, 2]);
    expect(leftOut).toEqual([]);
  });

  it('starts nothing after the deadline and says what is missing', async () => {
    const { samples, leftOut } = await interleave(cases([]), 3, 0);
    expect(samples).toEqual([[], []]);
    expect(leftOut).toEqual(['a: 0 of 3 rounds', 'b: 0 of 3 rounds']);
  });

  it('divides round by round, as far as both were measured', () => {
    const runs = (...seconds: number[]) =>
      seconds.map((each) => ({ seconds: each, machine: { fmaGflops: 1, bf16Gflops: null, readGBs: 1 } }));
    expect(quotients(runs(2, 4), runs(1, 3, 5))).toEqual([0.5, 0.75]);
    expect(quotients(runs(2, 4), [])).toEqual([]);
  });

  it('takes the median', () => {
    expect(median([3, 1, 2])).toBe(2);
    expect(median([4, 1, 3, 2])).toBe(2.5);
    expect(() => median([])).toThrow('nothing');
  });
});

it('a budget gives each part its share and what earlier ones left', () => {
  const start = Date.now();
  const budget = new Budget(100, { first: 1, second: 3 });
  const first = budget.deadlineOf('first');
  expect(first - start).toBeGreaterThanOrEqual(25_000);
  expect(budget.deadlineOf('second') - first).toBeCloseTo(75_000, 3);
});
