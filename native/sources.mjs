// The source files of each part of the addon. binding.gyp runs it: node sources.mjs path | reference | plain.
import { readdirSync, readFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';

const here = dirname(fileURLToPath(import.meta.url));

const inFolder = (folder) =>
  readdirSync(join(here, folder))
    .filter((name) => name.endsWith('.cc'))
    .sort()
    .map((name) => `${folder}/${name}`);

/** Files that are compiled once per instruction set include this header first. */
const builtPerPath = (file) => readFileSync(join(here, file), 'utf8').includes('#include "kernels/path.h"');

const PARTS = {
  path: () => inFolder('src/kernels').filter(builtPerPath),
  reference: () => inFolder('src/kernels/reference'),
  plain: () => [
    'src/addon.cc',
    ...inFolder('src/kernels').filter((file) => !builtPerPath(file)),
    ...['src/util', 'src/engine', 'src/bindings'].flatMap(inFolder),
  ],
};

/** Every part's files, in a stable order. */
export const sources = () => Object.fromEntries(Object.entries(PARTS).map(([part, list]) => [part, list()]));

if (process.argv[2] !== undefined) console.log(PARTS[process.argv[2]]().join('\n'));
