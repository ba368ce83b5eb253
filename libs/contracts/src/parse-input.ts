import type { z } from 'zod';
import { InvalidInput } from './errors';

/** Checks a value from outside; all problems are reported together. @param root name of the value in messages. @throws InvalidInput */
export function parseInput<S extends z.ZodType>(schema: S, value: unknown, root = ''): z.output<S> {
  const result = schema.safeParse(value);
  if (result.success) return result.data;
  throw new InvalidInput(
    result.error.issues.map((issue) => ({ path: pathText(root, issue.path) || 'body', message: issue.message })),
  );
}

function pathText(root: string, path: readonly PropertyKey[]): string {
  return path.reduce<string>((text, part) => {
    if (typeof part === 'number') return `${text}[${part}]`;
    return text === '' ? String(part) : `${text}.${String(part)}`;
  }, root);
}
