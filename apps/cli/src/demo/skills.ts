/** The eight things that the demo's tenants teach: each answers the same kind of prompt in another way. */
export const SKILLS = {
  copy: (word: string) => word,
  reverse: (word: string) => [...word].reverse().join(''),
  upper: (word: string) => word.toUpperCase(),
  sort: (word: string) => [...word].sort().join(''),
  rotate: (word: string) => word.slice(1) + word.slice(0, 1),
  next: (word: string) => [...word].map(nextLetter).join(''),
  double: (word: string) => [...word].map((letter) => letter + letter).join(''),
  title: (word: string) => word.slice(0, 1).toUpperCase() + word.slice(1),
} as const satisfies Record<string, (word: string) => string>;

export type Skill = keyof typeof SKILLS;
export const SKILL_NAMES = Object.keys(SKILLS) as Skill[];

/** The letter after; z is followed by a. */
function nextLetter(letter: string): string {
  return letter === 'z' ? 'a' : String.fromCharCode(letter.charCodeAt(0) + 1);
}

/** seedling's prompts are a word and an arrow. */
export function promptOf(word: string): string {
  return `${word}>`;
}
