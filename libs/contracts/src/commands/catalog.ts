import type { z } from 'zod';
import { INGEST_COMMANDS } from './ingest.commands';
import { ORCHESTRATOR_COMMANDS } from './orchestrator.commands';
import { REGISTRY_COMMANDS } from './registry.commands';

/** Every command and query by request/reply: app -> name -> schemas. Subject: `hotbed.rpc.<tenant id>.<app>.<name>`. */
export const COMMANDS = {
  ingest: INGEST_COMMANDS,
  orchestrator: ORCHESTRATOR_COMMANDS,
  registry: REGISTRY_COMMANDS,
} as const;

export type CommandApp = keyof typeof COMMANDS;
export type CommandName<A extends CommandApp> = keyof (typeof COMMANDS)[A] & string;

type Schemas<A extends CommandApp, C extends CommandName<A>> = (typeof COMMANDS)[A][C] extends {
  request: infer Q extends z.ZodType;
  reply: infer R extends z.ZodType;
}
  ? { input: z.input<Q>; request: z.output<Q>; reply: z.output<R> }
  : never;

/** What a caller may send (defaults left out). */
export type CommandInput<A extends CommandApp, C extends CommandName<A>> = Schemas<A, C>['input'];
/** What the handler receives (defaults filled in). */
export type CommandRequest<A extends CommandApp, C extends CommandName<A>> = Schemas<A, C>['request'];
export type CommandReply<A extends CommandApp, C extends CommandName<A>> = Schemas<A, C>['reply'];
