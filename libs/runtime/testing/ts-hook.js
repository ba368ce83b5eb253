// Lets a test start TypeScript in a process of its own: `node -r libs/runtime/testing/ts-hook.js some.ts`.
// Translates without type check and resolves #hotbed/* to the sources, as Jest does.
const { readFileSync } = require('node:fs');
const Module = require('node:module');
const { join } = require('node:path');
const ts = require('typescript');

const root = join(__dirname, '..', '..', '..');
const { compilerOptions } = ts.readConfigFile(join(root, 'tsconfig.json'), (path) => readFileSync(path, 'utf8')).config;

require.extensions['.ts'] = (module, filename) => {
  const { outputText } = ts.transpileModule(readFileSync(filename, 'utf8'), {
    compilerOptions: {
      ...ts.convertCompilerOptionsFromJson(compilerOptions, root).options,
      module: ts.ModuleKind.CommonJS,
      sourceMap: false,
    },
    fileName: filename,
  });
  module._compile(outputText, filename);
};

const resolve = Module._resolveFilename;
Module._resolveFilename = function (request, ...rest) {
  const library = /^#hotbed\/(.+)$/.exec(request)?.[1];
  return resolve.call(this, library === undefined ? request : join(root, 'libs', library, 'src', 'index.ts'), ...rest);
};
