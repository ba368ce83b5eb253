// The addon's own source files: everything but the kernels, which kernels.gypi lists. binding.gyp runs this file.
import { readdirSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';

const here = dirname(fileURLToPath(import.meta.url));

/** Paths relative to native/, in a stable order. */
export const sources = () => [
  'src/addon.cc',
  ...['src/engine', 'src/bindings'].flatMap((folder) =>
    readdirSync(join(here, folder))
      .filter((name) => name.endsWith('.cc'))
      .sort()
      .map((name) => `${folder}/${name}`),
  ),
];

if (process.argv[1] === fileURLToPath(import.meta.url)) console.log(sources().join('\n'));
