import { readFileSync } from 'node:fs';
import { z } from 'zod';

/** For every app that appends or reads. */
export const databaseConfigShape = {
  HOTBED_DATABASE_URL: z.url({ protocol: /^postgres(ql)?$/, message: 'expected postgresql://user@host:port/name' }),
};

/** For every app that speaks to the broker. */
export const natsConfigShape = {
  HOTBED_NATS_URL: z
    .string()
    .refine((text) => text.split(',').every(isAddress), 'expected nats://host:port, several separated by commas'),
  HOTBED_NATS_USER: z.string().min(1).optional(),
  HOTBED_NATS_PASSWORD: z.string().min(1).optional(),
  /** Read here, so that a missing or malformed file is reported with the other problems. */
  HOTBED_NATS_CREDENTIALS_FILE: z
    .string()
    .transform((path, context): Record<string, string> => {
      try {
        return z.record(z.string(), z.string()).parse(JSON.parse(readFileSync(path, 'utf8')));
      } catch {
        context.addIssue({
          code: 'custom',
          message: `expected a readable JSON file {"<user>": "<password>"}: ${path}`,
        });
        return z.NEVER;
      }
    })
    .optional(),
};

function isAddress(text: string): boolean {
  const address = text.includes('://') ? text.trim() : `nats://${text.trim()}`;
  return URL.canParse(address) && new URL(address).hostname !== '';
}

interface NatsValues {
  HOTBED_NATS_URL: string;
  HOTBED_NATS_USER?: string | undefined;
  HOTBED_NATS_PASSWORD?: string | undefined;
  HOTBED_NATS_CREDENTIALS_FILE?: Record<string, string> | undefined;
}

export interface NatsConfig {
  url: string;
  user?: string;
  password?: string;
}

/**
 * Who the app is at the broker: HOTBED_NATS_USER, else its own name where the credentials file has it, else what the
 * address says. @param service the app's name
 */
export function toNatsConfig(values: NatsValues, service: string): NatsConfig {
  const passwords = values.HOTBED_NATS_CREDENTIALS_FILE ?? {};
  const user = values.HOTBED_NATS_USER ?? (Object.hasOwn(passwords, service) ? service : undefined);
  if (user === undefined) return { url: values.HOTBED_NATS_URL };
  return {
    url: values.HOTBED_NATS_URL,
    user,
    password: values.HOTBED_NATS_PASSWORD ?? passwords[user] ?? '',
  };
}
