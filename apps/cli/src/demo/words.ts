import { createHash } from 'node:crypto';

const LETTERS = 'abcdefghijklmnopqrstuvwxyz';
const SHORTEST = 3;
const LONGEST = 6;

/**
 * `count` different words of 3 to 6 letters, a function of the seed and the words to leave out alone. Letters differ
 * within a word, so that no two skills agree on it more often than they must.
 */
export function drawWords(seed: string, count: number, leaveOut: ReadonlySet<string> = new Set()): string[] {
  const words = new Set<string>();
  for (let i = 0; words.size < count; i++) {
    const word = wordOf(createHash('sha256').update(`${seed}/${i}`).digest());
    if (!leaveOut.has(word)) words.add(word);
  }
  return [...words];
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
