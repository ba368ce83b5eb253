import { headers, type Msg, type MsgHdrs } from 'nats';
import { z } from 'zod';
import { idSchema, InvalidInput } from '#hotbed/contracts';

/** Who asks, when it is not the asking app itself. */
export const ACTOR_HEADER = 'Hotbed-Actor';

/** `key:<API key id>` */
const actorSchema = z
  .string()
  .refine((actor) => actor.startsWith('key:') && idSchema.safeParse(actor.slice('key:'.length)).success);

export function actorHeader(actor: string): MsgHdrs {
  const header = headers();
  header.set(ACTOR_HEADER, checked(actor));
  return header;
}

/**
 * The actor that a service names, else null. A tenant's user may ask, but not say in whose name: what comes through its
 * account's import carries a reply subject of the server's own (`_R_.`), and its header counts for nothing.
 * @throws InvalidInput naming the header
 */
export function actorOf(message: Msg): string | null {
  if (!/^_INBOX\./.test(message.reply ?? '')) return null;
  const actor = message.headers?.get(ACTOR_HEADER) ?? '';
  return actor === '' ? null : checked(actor);
}

function checked(actor: string): string {
  const parsed = actorSchema.safeParse(actor);
  if (parsed.success) return parsed.data;
  throw new InvalidInput([{ path: ACTOR_HEADER, message: 'expected key:<id of an API key>' }]);
}
