import { Failpoints, parseFailpoints } from './failpoints';

describe('failpoints', () => {
  it('are read as name and hit', () => {
    expect([...parseFailpoints('after-blob-rename:3,mid-backward')]).toEqual([
      ['after-blob-rename', 3],
      ['mid-backward', 1],
    ]);
  });

  it.each([
    ['somewhere:1', 'unknown failpoint "somewhere:1"'],
    ['mid-sample:0', 'expected a positive hit count'],
    ['mid-sample:x', 'expected a positive hit count'],
  ])('refuse %s', (text, message) => {
    expect(() => parseFailpoints(text)).toThrow(message);
  });

  it('end the process at the armed hit and at no other', () => {
    const kill = jest.spyOn(process, 'kill').mockImplementation(() => {
      throw new Error('ended');
    });
    const failpoints = new Failpoints(parseFailpoints('before-commit:2'));
    failpoints.hit('before-commit');
    failpoints.hit('after-commit');
    expect(kill).not.toHaveBeenCalled();
    expect(() => failpoints.hit('before-commit')).toThrow('ended');
    expect(kill).toHaveBeenCalledWith(process.pid, 'SIGKILL');
    kill.mockRestore();
  });
});
