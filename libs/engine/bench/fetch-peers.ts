import { spawn } from 'node:child_process';
import { copyFileSync, mkdirSync } from 'node:fs';
import { join } from 'node:path';
import { PeerProcess } from './peer-process';
import { repositoryFile } from './repository-file';

// Peers are measured, never depended on: whatever is missing is fetched into a temporary folder by the package
// managers that people use, and goes with it.

const LLAMA_CPP = '3.22.1';

export interface Peer {
  process: PeerProcess;
  versions: string;
}

/** torch, transformers and PEFT of `python`, or of a virtual environment made with it when it lacks them. */
export async function startTorchPeft(
  python: string,
  folder: string,
  args: { modelFolder: string; threads: number; rank: number },
): Promise<Peer> {
  let interpreter = python;
  try {
    await run(python, ['-c', 'import torch, transformers, peft'], folder);
  } catch {
    await run(python, ['-m', 'venv', join(folder, 'venv')], folder);
    interpreter = join(folder, 'venv', 'bin', 'python');
    await run(interpreter, ['-m', 'pip', 'install', '--quiet', 'torch', 'transformers', 'peft'], folder);
  }
  const script = repositoryFile('libs', 'engine', 'bench', 'peers', 'torch_peft_peer.py');
  const given = [script, args.modelFolder, String(args.threads), String(args.rank)];
  const [process, versions] = await PeerProcess.start('torch + PEFT', interpreter, given, folder);
  return { process, versions };
}

/** llama.cpp as node-llama-cpp ships it, without its GPU builds. */
export async function startLlamaCpp(
  folder: string,
  args: { gguf: string; threads: number; rows: number; tokens: number },
): Promise<Peer> {
  const at = join(folder, 'llama-cpp');
  mkdirSync(at, { recursive: true });
  const packages = [`node-llama-cpp@${LLAMA_CPP}`, `@node-llama-cpp/linux-x64@${LLAMA_CPP}`];
  const npm = ['install', '--prefix', at, '--omit=optional', '--ignore-scripts', '--no-audit', '--no-fund'];
  await run('npm', [...npm, '--loglevel=error', ...packages], at);
  const script = join(at, 'llama_cpp_peer.mjs');
  copyFileSync(repositoryFile('libs', 'engine', 'bench', 'peers', 'llama_cpp_peer.mjs'), script);
  const given = [script, args.gguf, String(args.threads), String(args.rows), String(args.tokens)];
  const [peer, versions] = await PeerProcess.start('llama.cpp', process.execPath, given, at);
  return { process: peer, versions };
}

/** @throws Error with the end of what the command wrote */
function run(command: string, args: string[], cwd: string): Promise<void> {
  return new Promise((resolve, reject) => {
    const child = spawn(command, args, { cwd, stdio: ['ignore', 'pipe', 'pipe'] });
    let output = '';
    const keep = (text: Buffer) => {
      output = (output + text.toString()).slice(-400);
    };
    child.stdout.on('data', keep);
    child.stderr.on('data', keep);
    child.once('error', reject);
    child.once('close', (code) => {
      if (code === 0) resolve();
      else
        reject(
          new Error(`${command} ${args.slice(0, 3).join(' ')} ended with code ${code ?? 'none'}: ${output.trim()}`),
        );
    });
  });
}
