import { Command } from 'commander';
import { newId, streamId } from '#hotbed/contracts';
import { aStreamOfRecords, withTestDatabase } from '#hotbed/event-store/testing';
import { printJson } from '../terminal/print';
import { addLanesCommands } from './lanes.command';

describe('hotbed lanes', () => {
  const db = withTestDatabase();
  const id = newId();
  const stream = streamId('data-stream', id);

  const hotbed = async (...words: string[]): Promise<unknown> => {
    const program = new Command('hotbed').exitOverride();
    addLanesCommands(program);
    printJson(true);
    const written: string[] = [];
    const write = jest.spyOn(process.stdout, 'write').mockImplementation((text) => written.push(String(text)) > 0);
    try {
      await program.parseAsync([...words, '--database', db.url], { from: 'user' });
    } finally {
      write.mockRestore();
    }
    return JSON.parse(written.join('')) as unknown;
  };

  it('lists what is parked and lets it go on', async () => {
    await db.store.append(aStreamOfRecords(newId(), id, 2));
    expect(await hotbed('lanes', 'list')).toEqual([]);
    await db.lanes.recordFailure('rewarder-rollouts', stream, 1n, 'broken');
    await db.lanes.park('rewarder-rollouts', stream, 1n, 'broken');
    expect(await hotbed('lanes', 'list')).toMatchObject([
      { consumer: 'rewarder-rollouts', streamId: stream, version: '1', attempts: 1, error: 'broken' },
    ]);
    expect(await hotbed('lanes', 'resume', 'rewarder-rollouts', stream)).toMatchObject({ resumed: true });
    expect(await hotbed('lanes', 'list')).toEqual([]);
    expect(await db.lanes.resumed('rewarder-rollouts')).toHaveLength(1);
  });

  it('refuses a lane that is not parked', async () => {
    await expect(hotbed('lanes', 'resume', 'nobody', stream)).rejects.toMatchObject({ code: 'parked_lane_not_found' });
  });
});
