import { type ChildProcess, spawn } from 'node:child_process';
import { createInterface } from 'node:readline';

/** A peer that waits in a process of its own and answers one JSON line for each JSON line. */
export class PeerProcess {
  private readonly waiting: { resolve: (line: string) => void; reject: (error: Error) => void }[] = [];
  private ended: Error | null = null;
  private errors = '';

  private constructor(
    private readonly child: ChildProcess,
    private readonly name: string,
  ) {
    child.once('error', (error) => this.end(error));
    child.once('close', (code) =>
      this.end(new Error(`${name} ended with code ${code ?? 'none'}: ${this.errors.trim()}`)),
    );
    child.stderr?.on('data', (text: Buffer) => {
      this.errors = (this.errors + text.toString()).slice(-500);
    });
    if (child.stdout)
      createInterface({ input: child.stdout }).on('line', (line) => this.waiting.shift()?.resolve(line));
  }

  /** @returns the peer and the versions that it names first; @throws Error with the end of what it wrote to stderr */
  static async start(name: string, command: string, args: string[], cwd: string): Promise<[PeerProcess, string]> {
    const peer = new PeerProcess(spawn(command, args, { cwd, stdio: ['pipe', 'pipe', 'pipe'] }), name);
    const { versions } = await peer.next<{ versions: string }>();
    return [peer, versions];
  }

  ask<T>(request: object): Promise<T> {
    const answer = this.next<T>();
    this.child.stdin?.write(`${JSON.stringify(request)}\n`);
    return answer;
  }

  stop(): Promise<void> {
    if (this.ended !== null) return Promise.resolve();
    return new Promise((resolve) => {
      this.child.once('close', () => resolve());
      this.child.kill('SIGKILL');
    });
  }

  private async next<T>(): Promise<T> {
    const line = await new Promise<string>((resolve, reject) => {
      if (this.ended !== null) reject(this.ended);
      else this.waiting.push({ resolve, reject });
    });
    try {
      return JSON.parse(line) as T;
    } catch {
      throw new Error(`${this.name}: expected JSON, got ${line}`);
    }
  }

  private end(error: Error): void {
    this.ended = error;
    for (const { reject } of this.waiting.splice(0)) reject(error);
  }
}
