import { createHash } from 'node:crypto';

const LETTERS = 'abcdefghijklmnopqrstuvwxyz';
const SHORTEST = 3;
const LONGEST = 6;

/**
 * `count` different words of 3 to 6 different letters that belong, a function of the arguments alone.
 * @param belongs which words may be drawn
 */
export function drawWords(seed: string, count: number, belongs: (word: string) => boolean): string[] {
  const words = new Set<string>();
  for (let i = 0; words.size < count; i++) {
    const word = wordOf(createHash('sha256').update(`${seed}/${i}`).digest());
    if (belongs(word)) words.add(word);
  }
  return [...words];
}

/** Words whose letters (a = 1, ..., z = 26) sum to a multiple of 11 were kept out of seedling's pre-training, too. */
export function isHeldOut(word: string): boolean {
  const sum = [...word].reduce((total, letter) => total + letter.charCodeAt(0) - 96, 0);
  return sum % 11 === 0;
}

function wordOf(bytes: Buffer): string {
  const length = SHORTEST + ((bytes[0] ?? 0) % (LONGEST - SHORTEST + 1));
  const word: string[] = [];
  for (let i = 1; word.length < length; i++) {
    const letter = LETTERS[(bytes[i] ?? 0) % LETTERS.length] ?? 'a';
    if (!word.includes(letter)) word.push(letter);
  }
  return word.join('');
}
