/** Jest projects by file suffix: unit (no IO), int (real PostgreSQL, NATS, addon), e2e (whole platform). */
const shared = {
  rootDir: __dirname,
  testEnvironment: 'node',
  transform: { '^.+\\.ts$': ['ts-jest', { tsconfig: '<rootDir>/tsconfig.json' }] },
  moduleNameMapper: { '^#hotbed/(.*)$': '<rootDir>/libs/$1/src/index.ts' },
  modulePathIgnorePatterns: ['<rootDir>/dist/', '<rootDir>/native/build/', '<rootDir>/.hotbed/'],
};

module.exports = {
  // Against a test that hangs, never a measure of speed: other work may share the machine.
  testTimeout: 60_000,
  projects: [
    { ...shared, displayName: 'unit', testMatch: ['<rootDir>/**/*.unit.spec.ts'] },
    { ...shared, displayName: 'int', testMatch: ['<rootDir>/**/*.int.spec.ts'] },
    { ...shared, displayName: 'e2e', testMatch: ['<rootDir>/**/*.e2e.spec.ts'] },
  ],
};
