import { Command } from 'commander';
import type { ApiClient } from '../api/api-client';
import { printJson } from '../terminal/print';
import { addExperimentsCommands } from './experiments.command';

describe('hotbed experiments create', () => {
  /** What the command posts. */
  const posted = async (...words: string[]): Promise<unknown> => {
    const bodies: unknown[] = [];
    const post = (path: string, body: unknown) => {
      expect(path).toBe('/v1/experiments');
      bodies.push(body);
      return Promise.resolve({});
    };
    const program = new Command('hotbed').exitOverride();
    addExperimentsCommands(program, () => ({ post }) as unknown as ApiClient);
    printJson(true);
    const write = jest.spyOn(process.stdout, 'write').mockReturnValue(true);
    try {
      await program.parseAsync(['experiments', 'create', 'tutor', '--stream', 'questions', ...words], { from: 'user' });
    } finally {
      write.mockRestore();
    }
    expect(bodies).toHaveLength(1);
    return bodies[0];
  };

  it('sends every --stop, in the order given', async () => {
    expect(await posted('--stop', '\n\n', '--stop', 'User:')).toMatchObject({ stopStrings: ['\n\n', 'User:'] });
  });

  it('sends no stop strings where none is given', async () => {
    expect(await posted()).not.toHaveProperty('stopStrings');
  });
});
