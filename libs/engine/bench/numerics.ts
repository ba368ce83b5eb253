import { NUMERICS_IDS, type NumericsId } from '../src/engine.types';
import { offeredNumerics } from '../src/open-engine';
import type { GivenOptions, OptionTable } from './options';

/** One numerics id. */
export const NUMERICS_OPTION = {
  numerics: { type: 'string', default: 'f32-1', help: `${NUMERICS_IDS.join(' or ')}, where this machine offers it` },
} as const satisfies OptionTable;

/** Several, compared in one run. */
export const NUMERICS_LIST_OPTION = {
  numerics: { type: 'string', help: `some of ${NUMERICS_IDS.join(',')}; without it all that this machine offers` },
} as const satisfies OptionTable;

/** @throws Error naming the option when its value is no numerics id */
export function numericsOf(options: GivenOptions): NumericsId {
  return idOf(options.text('numerics') ?? '');
}

/** @throws Error naming the option when one of its values is no numerics id */
export async function numericsListOf(options: GivenOptions): Promise<NumericsId[]> {
  const text = options.text('numerics');
  return text === null ? allOffered() : [...new Set(text.split(',').map(idOf))];
}

export async function allOffered(): Promise<NumericsId[]> {
  return (await offeredNumerics()).flatMap(({ id, refusal }) => (refusal === null ? [id] : []));
}

function idOf(text: string): NumericsId {
  const id = NUMERICS_IDS.find((each) => each === text);
  if (id === undefined) throw new Error(`--numerics: expected ${NUMERICS_IDS.join(' or ')}; got "${text}"`);
  return id;
}
