/**
 * docs/symptom-tests.md says which test shows which reported symptom. A renamed or deleted test makes its line wrong:
 *
 * 1. every line names a file that exists,
 * 2. the file holds a test of that name,
 * 3. that name holds the number of every symptom of the line,
 * 4. no line stands twice.
 */
import { existsSync, readFileSync } from 'node:fs';
import { join, resolve } from 'node:path';

const ROOT = resolve(__dirname, '..');

interface Line {
  section: string;
  symptoms: string[];
  file: string;
  test: string;
}

/** Lines of a table: `| symptoms | promise | `file` | test |`. */
function readLines(markdown: string): Line[] {
  const lines: Line[] = [];
  let section = '';
  for (const text of markdown.split('\n')) {
    if (text.startsWith('## ')) section = text.slice(3);
    if (!text.startsWith('|') || text.startsWith('|---') || text.startsWith('| symptom ')) continue;
    const [symptoms = '', , file = '', test = ''] = text
      .slice(1, -1)
      .split('|')
      .map((cell) => cell.trim());
    lines.push({ section, symptoms: symptoms.split(', '), file: file.replaceAll('`', ''), test });
  }
  return lines;
}

/** Names of tests as they stand in a source, less a ` (%s)` of `it.each` at the end: of `it`, `describe`, native `TEST`. */
function testNames(source: string): string[] {
  const quoted = [...source.matchAll(/(['"`])((?:\\.|(?!\1)[^\\\n])*)\1/g)].map(([, , name]) =>
    (name ?? '').replaceAll(/\\(.)/g, '$1').replace(/ \(%s\)$/, ''),
  );
  const native = [...source.matchAll(/^TEST\((\w+)\)/gm)].map(([, name]) => name ?? '');
  return [...quoted, ...native];
}

const LINES = readLines(readFileSync(join(ROOT, 'docs', 'symptom-tests.md'), 'utf8'));

describe('docs/symptom-tests.md', () => {
  it('has a line for many symptoms', () => {
    expect(LINES.length).toBeGreaterThan(35);
  });

  it.each(LINES)('$section: $symptoms', ({ symptoms, file, test }) => {
    expect(existsSync(join(ROOT, file))).toBe(true);
    expect(testNames(readFileSync(join(ROOT, file), 'utf8'))).toContain(test);
    for (const symptom of symptoms) {
      expect(symptom).toMatch(/^[\w.-]+#\d+$/);
      // Where one project has several, the name may give the later ones as "#number" alone; a native test's has "_number".
      expect(test).toMatch(new RegExp(`[#_]${symptom.split('#')[1] ?? ''}(?!\\d)`));
    }
  });

  it('has no line twice', () => {
    const places = LINES.flatMap(({ symptoms, file, test }) => symptoms.map((symptom) => `${symptom} ${file} ${test}`));
    expect(new Set(places).size).toBe(places.length);
  });
});
