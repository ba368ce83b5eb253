#!/usr/bin/env node
/** The `hotbed` command: makes the clone runnable where needed, then hands over to the compiled program. */
import { spawn } from 'node:child_process';
import { join } from 'node:path';
import { root, setUp } from './setup.mjs';

setUp();
const main = join(root, 'dist', 'apps', 'cli', 'src', 'main.js');
const child = spawn(process.execPath, ['--enable-source-maps', main, ...process.argv.slice(2)], { stdio: 'inherit' });
for (const signal of ['SIGINT', 'SIGTERM']) process.on(signal, () => child.kill(signal));
child.on('exit', (code, signal) => process.exit(signal === null ? code : 1));
