import { derivedId } from './ids';
import { CATEGORIES, type Category } from './event-catalog';

/** `adapter:<id>`: the category is what stands before the first colon. */
export function streamId(category: Category, key: string): string {
  return `${category}:${key}`;
}

/** An alias of an adapter has a stream of its own, so that moves of different aliases never conflict. */
export function aliasStreamId(adapterId: string, alias: string): string {
  return streamId('alias', derivedId(adapterId, `alias/${alias}`));
}

/** @throws TypeError for an id of no known category: only our own code makes stream ids. */
export function parseStreamId(id: string): { category: Category; key: string } {
  const colon = id.indexOf(':');
  const category = CATEGORIES.find((c) => c === id.slice(0, colon));
  if (category === undefined || colon === id.length - 1) throw new TypeError(`"${id}" is no stream id`);
  return { category, key: id.slice(colon + 1) };
}
