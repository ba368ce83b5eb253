#!/usr/bin/env node
/** The `hotbed` command: makes the clone runnable where needed, then hands over to the compiled program. */
import { spawn } from 'node:child_process';
import { join } from 'node:path';
import { isSetUp, root, setUp } from './setup.mjs';

// Only what starts a platform may change compiled files: another platform may be running on them.
const startsPlatform = process.argv.slice(2).some((word) => word === 'up' || word === 'demo');
if (startsPlatform || !isSetUp()) setUp();
const main = join(root, 'dist', 'apps', 'cli', 'src', 'main.js');
const child = spawn(process.execPath, ['--enable-source-maps', main, ...process.argv.slice(2)], { stdio: 'inherit' });
for (const signal of ['SIGINT', 'SIGTERM']) process.on(signal, () => child.kill(signal));
child.on('exit', (code, signal) => process.exit(signal === null ? code : 1));
