import { constants } from 'node:fs';
import { access, statfs } from 'node:fs/promises';
import { cpus, totalmem } from 'node:os';
import { readFileSync } from 'node:fs';
import type { Command } from 'commander';
import { configuredApi } from '../api/configured-api';
import { loadPlatformConfig } from '../platform/platform.config';
import { platformFilesHere } from '../platform/platform-files';
import { offeredNumerics } from '../platform/offered-numerics';
import { isJson } from '../terminal/print';

const GIB = 1024 ** 3;

interface Finding {
  ok: boolean;
  name: string;
  text: string;
}

/** Looks at everything that commonly keeps the platform from running, and says what to do. */
export function addDoctorCommand(program: Command): void {
  program
    .command('doctor')
    .description('what this machine has, and what is wrong with the platform here')
    .action(async () => {
      const findings = await Promise.all([processor(), numerics(), memory(), configuration(), disk(), gateway()]);
      process.stdout.write(
        isJson()
          ? `${JSON.stringify(findings, null, 2)}\n`
          : findings.map((f) => `${f.ok ? 'ok  ' : 'FAIL'}  ${f.name}: ${f.text}\n`).join(''),
      );
      if (findings.some((f) => !f.ok)) process.exitCode = 1;
    });
}

async function processor(): Promise<Finding> {
  const flags =
    readFileSync('/proc/cpuinfo', 'utf8')
      .match(/^flags\s*:(.*)$/m)?.[1]
      ?.split(' ') ?? [];
  const path = flags.includes('avx512f') ? 'avx512' : flags.includes('avx2') && flags.includes('fma') ? 'avx2' : null;
  return {
    ok: path !== null,
    name: 'processor',
    text: `${cpus().length} cores, ${path ?? 'no AVX2 with FMA: the engine needs an x86-64-v3 processor'}`,
  };
}

/** A fault only where the settings ask for what this machine does not offer. */
async function numerics(): Promise<Finding> {
  try {
    const offers = await offeredNumerics();
    const text = offers.map(({ id, refusal }) => (refusal === null ? id : `no ${id}: ${refusal}`)).join('; ');
    const { HOTBED_NUMERICS: wanted, HOTBED_KERNELS: kernels = 'auto' } = process.env;
    const refused = offers.some(({ id, refusal }) => id === wanted && refusal !== null);
    return { ok: !refused || kernels !== 'auto', name: 'numerics', text };
  } catch (error) {
    return { ok: false, name: 'numerics', text: error instanceof Error ? error.message : String(error) };
  }
}

async function memory(): Promise<Finding> {
  return { ok: totalmem() > 2 * GIB, name: 'memory', text: `${(totalmem() / GIB).toFixed(1)} GiB` };
}

async function configuration(): Promise<Finding> {
  try {
    const config = loadPlatformConfig(process.env);
    return { ok: true, name: 'configuration', text: `base ${config.modelFolder}, data in ${config.dataDir}` };
  } catch (error) {
    return { ok: false, name: 'configuration', text: error instanceof Error ? error.message : String(error) };
  }
}

/** Where data goes, not where the program lies. */
async function disk(): Promise<Finding> {
  const { dataDir, blobs } = platformFilesHere();
  const folders = [dataDir, ...(blobs.startsWith(dataDir) ? [] : [blobs])];
  const findings = await Promise.all(folders.map(diskOf));
  return { ok: findings.every((f) => f.ok), name: 'disk', text: findings.map((f) => f.text).join('; ') };
}

async function diskOf(folder: string): Promise<{ ok: boolean; text: string }> {
  const stats = await statfs(folder).catch(() => null);
  if (stats === null) return { ok: true, text: `${folder} is made at the first start` };
  const writable = await access(folder, constants.W_OK).then(
    () => true,
    () => false,
  );
  const free = (stats.bavail * stats.bsize) / GIB;
  return {
    ok: writable && free > 1,
    text: `${free.toFixed(1)} GiB free in ${folder}${writable ? '' : ', not writable'}`,
  };
}

async function gateway(): Promise<Finding> {
  try {
    const api = configuredApi();
    const response = await fetch(new URL('/readyz', api.url));
    const report = (await response.json()) as { ok: boolean; checks: Record<string, string> };
    const failing = Object.entries(report.checks).filter(([, state]) => state !== 'ok');
    return {
      ok: report.ok,
      name: 'platform',
      text: report.ok ? `ready at ${api.url}` : failing.map(([name, state]) => `${name}: ${state}`).join('; '),
    };
  } catch (error) {
    return {
      ok: true,
      name: 'platform',
      text: `not running (${error instanceof Error ? error.message : String(error)})`,
    };
  }
}
