import * as fc from 'fast-check';
import { z } from 'zod';
import {
  COMMANDS,
  DomainError,
  EVENTS,
  EVENT_TYPES,
  InvalidInput,
  JETSTREAM_OF,
  WINDOW_RECORDS,
  aliasStreamId,
  canonicalJson,
  eventSubject,
  float32Tensor,
  fromWireError,
  newId,
  parseInput,
  parseStreamId,
  rolloutId,
  rolloutSeed,
  streamId,
  tensorSchema,
  toFloat32Array,
  toWireError,
  triggerSchema,
  u64Schema,
} from './index';

describe('canonical JSON', () => {
  it('does not depend on the order of keys', () => {
    fc.assert(
      fc.property(fc.dictionary(fc.string({ unit: 'grapheme' }), fc.integer()), (object) => {
        const clean = Object.fromEntries(Object.entries(object).filter(([key]) => !key.includes('\u0000')));
        const reversed = Object.fromEntries(Object.entries(clean).reverse());
        expect(canonicalJson(clean)).toEqual(canonicalJson(reversed));
      }),
      { seed: 1 },
    );
  });

  it.each([
    ['U+0000', { a: [{ b: 'x\u0000y' }] }, '$.a[0].b'],
    ['an unpaired surrogate', { a: '\ud800' }, '$.a'],
    ['an unpaired surrogate in a key', { '\udfff': 1 }, '$."\\udfff"'],
    ['NaN', { loss: NaN }, '$.loss'],
    ['a bigint', [1n], '$[0]'],
  ])('refuses %s and names where', (_what, value, path) => {
    expect(() => canonicalJson(value)).toThrow(
      expect.objectContaining({ code: 'invalid_input', fields: [expect.objectContaining({ path })] }),
    );
  });
});

describe('tensors', () => {
  it('keep every bit of a float', () => {
    const bits = new Uint32Array([0x80000000, 0x7fc00001, 0x00000001, 0xff800000, 0x3f800000]);
    const values = new Float32Array(bits.buffer);
    const back = toFloat32Array(tensorSchema.parse(JSON.parse(JSON.stringify(float32Tensor(values)))));
    expect(new Uint32Array(back.buffer)).toEqual(bits);
  });

  it('are refused when bytes and shape disagree', () => {
    expect(tensorSchema.safeParse({ dtype: 'f32', shape: [3], base64: 'AAAAAA==' }).success).toBe(false);
  });
});

describe('ids and seeds', () => {
  it('the same request, prompt and sample give the same rollout id', () => {
    const request = newId();
    expect(rolloutId(request, 1, 12)).toBe(rolloutId(request, 1, 12));
    expect(rolloutId(request, 1, 12)).not.toBe(rolloutId(request, 11, 2));
  });

  it('rollout seeds are fixed for ever', () => {
    expect(rolloutSeed('0', 0, 0, 0, 0)).toBe('10295938474616874348');
    expect(rolloutSeed('18446744073709551615', 1, 2, 3, 4)).toBe('3264053933192480295');
  });

  it('a seed of more than 64 bits is refused', () => {
    expect(u64Schema.safeParse('18446744073709551616').success).toBe(false);
    expect(u64Schema.safeParse('18446744073709551615').success).toBe(true);
    expect(u64Schema.safeParse('007').success).toBe(false);
  });

  it.each(['', 'x', '1.5', '-1', '0x10', ' 1', '1e3'])('a seed %j is refused and raises nothing else', (seed) => {
    expect(u64Schema.safeParse(seed).error?.issues).toHaveLength(1);
  });
});

describe('commands', () => {
  const fieldsOf = (schema: z.ZodType, body: unknown): string[] =>
    (schema.safeParse(body).error?.issues ?? []).map((issue) => issue.path.join('.'));

  it('take no alias that reads as a version number', () => {
    const { request } = COMMANDS.orchestrator['move-alias'];
    expect(fieldsOf(request, { adapter: 'reverse', alias: '7', version: 1 })).toEqual(['alias']);
    for (const alias of ['v7', '7b', '1.0']) expect(fieldsOf(request, { adapter: 'x', alias, version: 1 })).toEqual([]);
  });

  it('take no count trigger beyond what one window holds', () => {
    const trigger = (records: number) => triggerSchema.safeParse({ kind: 'count', records }).success;
    expect([0, 1, WINDOW_RECORDS, WINDOW_RECORDS + 1].map(trigger)).toEqual([false, true, true, false]);
  });
});

describe('the event catalogue', () => {
  it.each(EVENT_TYPES)('%s has a category that a JetStream stream carries, and an owner', (type) => {
    expect(JETSTREAM_OF[EVENTS[type].category]).toMatch(/^HOTBED_/);
    expect(EVENTS[type].owners.length).toBeGreaterThan(0);
  });

  it('subjects hold ids only', () => {
    const adapterId = newId();
    const tenantId = newId();
    expect(eventSubject({ streamId: streamId('adapter', adapterId), tenantId, type: 'OperationApplied' })).toBe(
      `hotbed.v1.adapter.${tenantId}.${adapterId}.OperationApplied`,
    );
    expect(aliasStreamId(adapterId, 'a.b c')).toMatch(/^alias:[0-9a-f-]{36}$/);
  });

  it('knows its own stream ids only', () => {
    expect(parseStreamId('data-stream:x')).toEqual({ category: 'data-stream', key: 'x' });
    expect(() => parseStreamId('nothing:x')).toThrow(TypeError);
    expect(() => parseStreamId('adapter:')).toThrow(TypeError);
  });
});

describe('errors', () => {
  it('cross the wire whole', () => {
    const error = new DomainError('TooMany', 'quota', 'full; delete something', {
      retryAfterMs: 5,
      context: { used: 7 },
    });
    expect(fromWireError(JSON.parse(JSON.stringify(toWireError(error))))).toMatchObject({
      kind: 'TooMany',
      code: 'quota',
      retryable: true,
      retryAfterMs: 5,
      context: { used: 7 },
    });
  });

  it('a bug shows nothing of itself outside', () => {
    expect(JSON.stringify(toWireError(new Error('password=x')))).not.toContain('password');
  });

  it('bad input names every wrong field', () => {
    const schema = z.strictObject({
      rank: z.number().int().min(1).max(256),
      records: z.array(z.object({ prompt: z.string() })),
    });
    try {
      parseInput(schema, { rank: 0, records: [{ prompt: 'a' }, {}], rnak: 1 });
      throw new Error('expected a refusal');
    } catch (error) {
      expect(error).toBeInstanceOf(InvalidInput);
      expect((error as InvalidInput).fields.map((f) => f.path)).toEqual(['rank', 'records[1].prompt', 'body']);
    }
  });
});
