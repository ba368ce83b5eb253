interface Closable {
  close(): Promise<void>;
}

/** Remembers what was opened. @returns the same */
export type Keep = <T extends Closable>(opened: T) => T;

/**
 * Runs a start that opens one thing after another. When it fails, what it had opened is closed again, newest first: a
 * connection left open would keep the process from ending. What closing says is lost; the start's own error is thrown.
 */
export async function closeOnFailure<R>(start: (keep: Keep) => Promise<R>): Promise<R> {
  const open: Closable[] = [];
  try {
    return await start((opened) => {
      open.push(opened);
      return opened;
    });
  } catch (error) {
    for (const opened of open.reverse()) await opened.close().catch(() => undefined);
    throw error;
  }
}
