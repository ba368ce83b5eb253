import { offeredNumerics } from '#hotbed/engine';

/** `offered-numerics.js`: what this machine offers of every numerics contract, one JSON document on standard output. */
offeredNumerics().then(
  (offers) => process.stdout.write(`${JSON.stringify(offers)}\n`),
  (error: unknown) => {
    process.stderr.write(`${error instanceof Error ? error.message : String(error)}\n`);
    process.exitCode = 1;
  },
);
