import { sparkline } from './sparkline';
import { table } from './table';

describe('a table', () => {
  it('sets numbers to the right, text to the left, and marks what is absent', () => {
    expect(
      table(
        ['name', 'steps'],
        [
          ['a', 5],
          ['long', 50],
        ],
      ),
    ).toBe('name  steps\na         5\nlong     50');
    expect(table(['name', 'x'], [['a', null]])).toBe('name  x\na     -');
  });
});

describe('a sparkline', () => {
  it('goes from low to high, never wider than asked', () => {
    expect(sparkline([0, 1], 8)).toBe('▁█');
    expect(
      sparkline(
        Array.from({ length: 100 }, (_, i) => i / 99),
        4,
      ),
    ).toBe('▂▄▅▇');
    expect(sparkline([], 4)).toBe('');
    expect(sparkline([7, -7], 4)).toBe('█▁');
  });
});
