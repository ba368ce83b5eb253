import pg from 'pg';
import { newId } from '#hotbed/contracts';
import { aStreamOfRecords, withTestDatabase } from '#hotbed/event-store/testing';
import { LogListener } from './log-listener';

describe('listening to the log', () => {
  const db = withTestDatabase();
  let listener: LogListener;
  beforeEach(async () => void (listener = await LogListener.start(db.url)));
  afterEach(() => listener.close());

  it('wakes as soon as an append commits, and does not wait for what is there already', async () => {
    const { position } = await db.store.head();
    const woken = listener.waitBeyond(position, 60_000);
    await db.store.append(aStreamOfRecords(newId(), newId()));
    await woken;
    await listener.waitBeyond(position, 60_000);
  });

  it('hears after a broken connection what was appended meanwhile', async () => {
    const admin = new pg.Client({ connectionString: db.adminUrl });
    await admin.connect();
    await admin.query(`SELECT pg_terminate_backend(pid) FROM pg_stat_activity
                       WHERE application_name = 'hotbed-listen' AND datname = current_database()`);
    await admin.end();
    await db.store.append(aStreamOfRecords(newId(), newId()));
    await listener.waitBeyond((await db.store.head()).position - 1n, 60_000);
  });

  it('lets a waiter go at the time-out, at an abort and at the close', async () => {
    const far = 2n ** 62n;
    await listener.waitBeyond(far, 1);
    const abort = new AbortController();
    const waiting = listener.waitBeyond(far, 60_000, abort.signal);
    abort.abort();
    await waiting;
    const closing = listener.waitBeyond(far, 60_000);
    await listener.close();
    await closing;
  });
});
