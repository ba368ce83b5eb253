import type { z } from 'zod';
import { isVariable, VARIABLES, type VariableName } from './variables';

export type ConfigShape = Partial<Record<VariableName, z.ZodType>>;
export type ConfigValues<S extends ConfigShape> = {
  [K in keyof S]: S[K] extends z.ZodType ? z.output<S[K]> : never;
};

/** Every problem of the environment at once, each with its variable. Thrown before anything starts. */
export class ConfigError extends Error {
  constructor(readonly problems: readonly { variable: string; message: string }[]) {
    super(`configuration:\n${problems.map((p) => `  ${p.variable}: ${p.message}`).join('\n')}`);
    this.name = 'ConfigError';
  }
}

/**
 * Reads an app's variables, refuses unknown HOTBED_* ones, and freezes the result. An empty variable counts as unset.
 * @param shape a zod type per variable of the catalogue
 * @param nest the values as the app's nested configuration
 * @throws ConfigError
 */
export function loadConfig<S extends ConfigShape, T extends object>(
  shape: S,
  nest: (values: ConfigValues<S>) => T,
  env: NodeJS.ProcessEnv = process.env,
): Readonly<T> {
  const problems = unknownVariables(env);
  const values: Record<string, unknown> = {};
  for (const [variable, schema] of Object.entries(shape) as [VariableName, z.ZodType][]) {
    const result = schema.safeParse(env[variable] === '' ? undefined : env[variable]);
    if (result.success) values[variable] = result.data;
    else
      problems.push({
        variable,
        message: env[variable]
          ? result.error.issues.map((i) => i.message).join('; ')
          : `is not set (${VARIABLES[variable]})`,
      });
  }
  if (problems.length > 0) throw new ConfigError(problems);
  return deepFreeze(nest(values as ConfigValues<S>));
}

function unknownVariables(env: NodeJS.ProcessEnv): { variable: string; message: string }[] {
  return Object.keys(env)
    .filter((name) => name.startsWith('HOTBED_') && !isVariable(name))
    .map((variable) => {
      const close = closest(variable);
      return { variable, message: `unknown variable${close === undefined ? '' : `; did you mean ${close}?`}` };
    });
}

/** The catalogue's name at most a third of the letters away. */
function closest(name: string): string | undefined {
  const ranked = Object.keys(VARIABLES)
    .map((known) => ({ known, distance: editDistance(name, known) }))
    .sort((a, b) => a.distance - b.distance);
  const best = ranked[0];
  return best !== undefined && best.distance * 3 <= name.length - 'HOTBED_'.length ? best.known : undefined;
}

function editDistance(a: string, b: string): number {
  let row = Array.from({ length: b.length + 1 }, (_, j) => j);
  for (let i = 1; i <= a.length; i++) {
    const next = [i];
    for (let j = 1; j <= b.length; j++) {
      const substituted = (row[j - 1] ?? 0) + (a[i - 1] === b[j - 1] ? 0 : 1);
      next.push(Math.min((row[j] ?? 0) + 1, (next[j - 1] ?? 0) + 1, substituted));
    }
    row = next;
  }
  return row[b.length] ?? 0;
}

function deepFreeze<T extends object>(value: T): Readonly<T> {
  for (const part of Object.values(value)) {
    if (typeof part === 'object' && part !== null && !Object.isFrozen(part)) deepFreeze(part as object);
  }
  return Object.freeze(value);
}
