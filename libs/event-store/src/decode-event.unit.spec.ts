import { readFileSync, readdirSync } from 'node:fs';
import { join } from 'node:path';
import { EVENTS, EVENT_TYPES, canonicalJson, isEventType, type EventHeader } from '#hotbed/contracts';
import { decodeEvent, type EventRow } from './decode-event';
import { FileBlobStore } from './file-blob-store';
import { upcast } from './upcast';

interface GoldenEvent {
  header: EventHeader;
  payload: Record<string, unknown>;
}

const folder = join(__dirname, '..', 'golden');
const golden = readdirSync(folder).map((file) => ({
  file,
  event: JSON.parse(readFileSync(join(folder, file), 'utf8')) as GoldenEvent,
}));
/** No golden payload is over the limit: nothing is read from it. */
const noBlobs = new FileBlobStore({ root: 'no-such-folder' });

function stored({ header, payload }: GoldenEvent): EventRow {
  return {
    global_position: 7n,
    stream_version: 3n,
    recorded_at_ms: 1_764_547_200_001n,
    event_hash: Buffer.alloc(32, 0xab),
    header_bytes: canonicalJson(header),
    payload_bytes: canonicalJson(payload),
  };
}

describe('stored events of every type and version', () => {
  it('are kept as golden files', () => {
    const wanted = EVENT_TYPES.flatMap((type) =>
      Array.from({ length: EVENTS[type].schemaVersion }, (_, i) => `${type}.${i + 1}.json`),
    );
    expect(golden.map(({ file }) => file)).toEqual(expect.arrayContaining(wanted));
  });

  it.each(golden)('$file is still read, with every field that was stored', async ({ file, event }) => {
    expect(file).toBe(`${event.header.type}.${event.header.schemaVersion}.json`);
    expect(isEventType(event.header.type)).toBe(true);
    const decoded = await decodeEvent(stored(event), noBlobs);
    expect(decoded).toMatchObject({
      ...event.header,
      globalPosition: 7n,
      streamVersion: 3n,
      eventHash: 'ab'.repeat(32),
    });
    if (event.header.schemaVersion === EVENTS[decoded.type].schemaVersion) {
      expect(decoded.payload).toMatchObject(event.payload);
    }
  });
});

describe('an event of a newer Hotbed', () => {
  const { header, payload } = golden.find(({ file }) => file === 'RecordReceived.1.json')!.event;

  it('stops its reader: unknown type', async () => {
    const row = stored({ header: { ...header, type: 'RecordTeleported' }, payload });
    await expect(decodeEvent(row, noBlobs)).rejects.toMatchObject({ kind: 'IllegalState', code: 'unknown_event_type' });
  });

  it('stops its reader: unknown version', async () => {
    const row = stored({ header: { ...header, schemaVersion: 99 }, payload });
    await expect(decodeEvent(row, noBlobs)).rejects.toMatchObject({
      kind: 'IllegalState',
      code: 'unknown_event_version',
    });
  });
});

describe('upcasting', () => {
  const steps = {
    RecordReceived: {
      1: (payload: unknown) => ({ ...(payload as object), second: true }),
      2: (payload: unknown) => ({ ...(payload as object), third: true }),
    },
  };

  it('goes step by step from the stored version to the current one', () => {
    expect(upcast('RecordReceived', 1, 3, { a: 1 }, steps)).toEqual({ a: 1, second: true, third: true });
    expect(upcast('RecordReceived', 2, 3, { a: 1 }, steps)).toEqual({ a: 1, third: true });
    expect(upcast('RecordReceived', 3, 3, { a: 1 }, steps)).toEqual({ a: 1 });
  });

  it('stops where a step is missing', () => {
    expect(() => upcast('RecordReceived', 3, 4, {}, steps)).toThrow(/no upcaster for RecordReceived from version 3/);
  });
});
