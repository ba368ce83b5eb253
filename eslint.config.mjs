import eslint from '@eslint/js';
import prettier from 'eslint-config-prettier';
import tseslint from 'typescript-eslint';

/**
 * Who may import whom: apps import libs; libs import contracts; no app imports an app; the addon's facade only in
 * gpu-worker; the broker client only in messaging; pg only in event-store, migrations and the files that own a read model.
 */
const forbid = (patterns) => ['error', { patterns }];

const LIBS = ['engine', 'event-store', 'messaging', 'models', 'runtime', 'fold', 'adapters', 'verifiers'];

const APPS = ['gateway', 'ingest', 'orchestrator', 'rewarder', 'gpu-worker', 'registry', 'relay', 'cli'];
const noApps = {
  regex: `^(\\.\\./)+(apps/)?(${APPS.join('|')})/src/`,
  message: 'Libraries and apps never import an app.',
};
const noBroker = { group: ['nats', '@nats-io/*'], message: 'The broker client is used in libs/messaging only.' };
const noSql = {
  group: ['pg', 'typeorm'],
  message: 'SQL lives in libs/event-store, migrations and *.read-model.ts files.',
};
const noEngine = { group: ['#hotbed/engine'], message: 'Only gpu-worker loads the engine.', allowTypeImports: true };
const noDeep = { regex: '^#hotbed/[^/]+/.+', message: 'Import a library by its root.' };
const otherLibs = (self, allowed = []) => ({
  group: LIBS.filter((lib) => lib !== self && !allowed.includes(lib)).map((lib) => `#hotbed/${lib}`),
  message: 'Two libraries meet only in an app; libraries import contracts.',
  allowTypeImports: self === 'fold',
});

const libRule = (lib, { broker = false, sql = false, libs = [] } = {}) => ({
  files: [`libs/${lib}/**/*.ts`],
  ignores: ['**/*.spec.ts', `libs/${lib}/bench/**`, '**/testing/**'],
  rules: {
    '@typescript-eslint/no-restricted-imports': forbid([
      noApps,
      noDeep,
      otherLibs(lib, libs),
      ...(broker ? [] : [noBroker]),
      ...(sql ? [] : [noSql]),
    ]),
  },
});

export default tseslint.config(
  { ignores: ['dist/**', 'node_modules/**', 'native/build/**', '.hotbed/**', 'coverage/**'] },
  eslint.configs.recommended,
  {
    files: ['**/*.mjs', '**/*.js'],
    languageOptions: {
      globals: {
        process: 'readonly',
        console: 'readonly',
        __dirname: 'readonly',
        module: 'writable',
        require: 'readonly',
        URL: 'readonly',
        Buffer: 'readonly',
        setTimeout: 'readonly',
        clearTimeout: 'readonly',
      },
    },
  },
  {
    files: ['**/*.ts'],
    extends: [...tseslint.configs.recommendedTypeChecked],
    languageOptions: { parserOptions: { projectService: true, tsconfigRootDir: import.meta.dirname } },
    rules: {
      '@typescript-eslint/no-floating-promises': 'error',
      '@typescript-eslint/switch-exhaustiveness-check': ['error', { considerDefaultExhaustiveForUnions: true }],
      '@typescript-eslint/consistent-type-imports': ['error', { disallowTypeAnnotations: false }],
      '@typescript-eslint/no-unused-vars': ['error', { argsIgnorePattern: '^_', varsIgnorePattern: '^_' }],
      '@typescript-eslint/restrict-template-expressions': ['error', { allowNumber: true, allowBoolean: true }],
      '@typescript-eslint/require-await': 'off',
      'no-restricted-syntax': [
        'error',
        { selector: 'ExportDefaultDeclaration', message: 'Named exports only.' },
        { selector: 'ExportAllDeclaration', message: 'List what a module exports.' },
      ],
    },
  },
  {
    // Nest reads constructor parameter types at run time: a type-only import would erase them.
    files: ['apps/**/*.ts'],
    rules: { '@typescript-eslint/consistent-type-imports': 'off' },
  },
  {
    files: ['**/*.spec.ts', '**/testing/**/*.ts', 'test/**/*.ts'],
    rules: {
      '@typescript-eslint/no-unsafe-assignment': 'off',
      '@typescript-eslint/no-unsafe-member-access': 'off',
      '@typescript-eslint/no-unsafe-argument': 'off',
      '@typescript-eslint/no-unsafe-call': 'off',
      '@typescript-eslint/no-unsafe-return': 'off',
      '@typescript-eslint/unbound-method': 'off',
    },
  },
  {
    files: ['libs/contracts/**/*.ts'],
    ignores: ['**/*.spec.ts'],
    rules: {
      '@typescript-eslint/no-restricted-imports': forbid([
        noApps,
        noBroker,
        noSql,
        { group: ['#hotbed/*'], message: 'contracts imports nothing of ours.' },
        { group: ['node:fs', 'node:net', 'node:http', 'node:child_process'], message: 'contracts does no IO.' },
      ]),
    },
  },
  libRule('event-store', { sql: true }),
  libRule('messaging', { broker: true }),
  libRule('engine'),
  libRule('models'),
  libRule('runtime'),
  libRule('fold'),
  libRule('adapters'),
  libRule('verifiers'),
  {
    files: ['apps/**/*.ts'],
    ignores: ['**/*.spec.ts', '**/testing/**'],
    rules: { '@typescript-eslint/no-restricted-imports': forbid([noApps, noDeep, noBroker, noSql, noEngine]) },
  },
  {
    files: ['apps/**/*.read-model.ts', 'apps/**/*.projection.ts'],
    rules: { '@typescript-eslint/no-restricted-imports': forbid([noApps, noDeep, noBroker, noEngine]) },
  },
  {
    // `hotbed up` hosts the control plane in one process: this file alone names the apps.
    files: ['apps/cli/src/platform/hosted-apps.ts'],
    rules: { '@typescript-eslint/no-restricted-imports': forbid([noDeep, noBroker, noSql, noEngine]) },
  },
  {
    files: ['apps/gpu-worker/**/*.ts'],
    ignores: ['**/*.spec.ts', '**/testing/**'],
    rules: { '@typescript-eslint/no-restricted-imports': forbid([noApps, noDeep, noBroker, noSql]) },
  },
  prettier,
);
