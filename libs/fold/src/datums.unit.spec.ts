import {
  float32Tensor,
  int32Tensor,
  toFloat32Array,
  toInt32Array,
  type InlineDatum,
  type RolloutDatum,
} from '#hotbed/contracts';
import { TextTokenizer } from '#hotbed/models';
import { datumsOf, type ForwardBackward } from './datums';
import {
  EVERY_LOSS,
  ROLLOUTS,
  Random,
  trainingOnBothPrompts,
  twoPromptsAnsweredOutOfOrder,
  underLoss,
} from '#hotbed/fold/testing';

const LATER = 1000n;

describe('the datums of an operation on recorded rollouts', () => {
  it('come in the order of the operation, whatever the order in which the completions were recorded', async () => {
    const datums = await datumsOf(trainingOnBothPrompts(), LATER, twoPromptsAnsweredOutOfOrder());
    expect(datums.map((d) => [...d.prompt])).toEqual([
      [1, 10],
      [1, 11],
    ]);
    expect(datums.map((d) => d.branches.map((b) => [...b.tokens]))).toEqual([
      [
        [20, 30],
        [20, 31, 2],
      ],
      [
        [21, 30],
        [21, 31, 2],
      ],
    ]);
  });

  it('carry the recorded policy log-probs and one advantage at every token of its completion', async () => {
    const [datum] = await datumsOf(trainingOnBothPrompts(), LATER, twoPromptsAnsweredOutOfOrder());
    expect(datum?.branches.map((b) => [...(b.logprobs ?? [])])).toEqual([
      [-0.5, -0.25],
      [-0.5, -0.25, -0.125],
    ]);
    expect(datum?.branches.map((b) => [...(b.advantages ?? [])])).toEqual([
      [1, 1],
      [-1, -1, -1],
    ]);
    expect(datum?.branches.map((b) => b.weights)).toEqual([null, null]);
  });

  it('are refused where a reference leads to an event that was recorded after the operation was accepted', async () => {
    await expect(datumsOf(trainingOnBothPrompts(), 3n, twoPromptsAnsweredOutOfOrder())).rejects.toMatchObject({
      kind: 'InvalidInput',
      fields: [{ path: 'datums[0].completedVersion' }],
    });
  });

  const wrongDatums: [string, Partial<RolloutDatum>, string][] = [
    ['names no rollout of that sample', { branches: [swapped()], advantages: float32Tensor([1]) }, 'branches[0]'],
    ['names another prompt', { promptIndex: 1 }, 'promptIndex'],
    ['points at no request', { requestVersion: '2' }, 'requestVersion'],
    ['points beyond the stream', { completedVersion: '9' }, 'completedVersion'],
    ['has one advantage too many', { advantages: float32Tensor([1, 2, 3]) }, 'advantages'],
    ['has advantages of whole numbers', { advantages: int32Tensor([1, 2]) }, 'advantages'],
  ];
  it.each(wrongDatums)('are refused where a datum %s', async (_, change, field) => {
    const operation = trainingOnBothPrompts();
    const wrong = { ...operation, datums: [{ ...operation.datums[0], ...change }] } as ForwardBackward;
    await expect(datumsOf(wrong, LATER, twoPromptsAnsweredOutOfOrder())).rejects.toMatchObject({
      kind: 'InvalidInput',
      fields: [{ path: `datums[0].${field}` }],
    });
  });

  it('have a sequence ratio over their whole completions under gspo, and no mask under others', async () => {
    const events = twoPromptsAnsweredOutOfOrder();
    const gspo: ForwardBackward = { ...trainingOnBothPrompts(), loss: { name: 'gspo', clipLow: 0.9, clipHigh: 1.1 } };
    const [datum] = await datumsOf(gspo, LATER, events);
    expect(datum?.branches.map((b) => [...(b.mask ?? [])])).toEqual([
      [1, 1],
      [1, 1, 1],
    ]);
    const [other] = await datumsOf(trainingOnBothPrompts(), LATER, events);
    expect(other?.branches.map((b) => b.mask)).toEqual([null, null]);
  });

  it.each(['cross_entropy', 'given_gradient'] as const)(
    'are refused under %s, which takes no advantages',
    async (name) => {
      const operation: ForwardBackward = { ...trainingOnBothPrompts(), loss: { name } };
      await expect(datumsOf(operation, LATER, twoPromptsAnsweredOutOfOrder())).rejects.toMatchObject({
        fields: [{ path: 'datums[0]' }],
      });
    },
  );

  it('read a step of the stream once, not once per datum', async () => {
    const events = twoPromptsAnsweredOutOfOrder();
    const readStream = jest.spyOn(events, 'readStream');
    await datumsOf(trainingOnBothPrompts(), LATER, events);
    expect(readStream.mock.calls).toEqual([[ROLLOUTS, { after: 0n, upTo: 3n }]]);
  });
});

describe('the datums of an operation with data inside', () => {
  const operation: ForwardBackward = {
    kind: 'forward_backward',
    loss: { name: 'cross_entropy' },
    datums: [
      {
        source: 'inline',
        recordId: null,
        subjectIds: [],
        prompt: int32Tensor([1, 5]),
        branches: [{ tokens: int32Tensor([6, 7]), weights: float32Tensor([1, -0]), logprobs: null, advantages: null }],
      },
    ],
  };

  it('keep every bit, the sign of zero too', async () => {
    const [datum] = await datumsOf(operation, LATER, twoPromptsAnsweredOutOfOrder());
    expect(Object.is(datum?.branches[0]?.weights?.[1], -0)).toBe(true);
    expect([...(datum?.prompt ?? [])]).toEqual([1, 5]);
  });

  it('have their targets, masks and gradients in row order', async () => {
    const random = new Random(3);
    for (const loss of EVERY_LOSS) {
      const made = underLoss(random, loss, loss.name === 'gspo' ? 1 : 2) as ForwardBackward;
      const inline = made.datums[0] as InlineDatum;
      const [datum] = await datumsOf(made, LATER, twoPromptsAnsweredOutOfOrder());
      for (const [b, branch] of inline.branches.entries()) {
        for (const field of ['weights', 'logprobs', 'advantages', 'gradients', 'mask'] as const) {
          const tensor = branch[field];
          expect(datum?.branches[b]?.[field]).toEqual(tensor ? toFloat32Array(tensor) : null);
        }
        expect(datum?.branches[b]?.targets).toEqual(branch.targets ? toInt32Array(branch.targets) : null);
      }
    }
  });

  it('are refused where a tensor has the wrong type', async () => {
    const datum = { ...operation.datums[0], prompt: float32Tensor([1]) } as ForwardBackward['datums'][number];
    const wrong: ForwardBackward = { ...operation, datums: [datum] };
    await expect(datumsOf(wrong, LATER, twoPromptsAnsweredOutOfOrder())).rejects.toMatchObject({
      fields: [{ path: 'datums[0].prompt' }],
    });
  });
});

describe('SkyRL#123, rllm#272: decode then encode trains on other tokens than were sampled', () => {
  it('the ids that were sampled are the ids that are trained, also where their text would give others', async () => {
    const json = {
      version: '1.0',
      truncation: null,
      padding: null,
      added_tokens: [],
      normalizer: null,
      pre_tokenizer: null,
      post_processor: null,
      decoder: { type: 'Fuse' },
      model: { type: 'BPE', vocab: { x: 1, a: 20, c: 21, b: 30, d: 31, ab: 40 }, merges: [['a', 'b']] },
    };
    const tokenizer = TextTokenizer.fromJson(json, {}, null);
    const sampled = [20, 30];
    expect([...tokenizer.encode(tokenizer.decode(sampled))]).toEqual([40]);
    const [datum] = await datumsOf(trainingOnBothPrompts(), LATER, twoPromptsAnsweredOutOfOrder());
    expect([...(datum?.branches[0]?.tokens ?? [])]).toEqual(sampled);
  });
});

/** The first sample's rollout under the second's index. */
function swapped(): RolloutDatum['branches'][number] {
  const [datum] = trainingOnBothPrompts().datums as RolloutDatum[];
  return { rolloutId: datum?.branches[0]?.rolloutId ?? '', sampleIndex: 1 };
}
