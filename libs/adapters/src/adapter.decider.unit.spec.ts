import {
  LOSS_BRANCH_FIELDS,
  float32Tensor,
  int32Tensor,
  type BranchField,
  type InlineDatum,
  type Operation,
  type PayloadOf,
} from '#hotbed/contracts';
import { EVERY_LOSS, Random, underLoss } from '#hotbed/fold/testing';
import { NO_ADAPTER, evolveAdapter, type Adapter } from './adapter';
import { decideAcceptOperations, decideCreateAdapter } from './adapter.decider';

const ADAPTER = '00000000-0000-7000-8000-00000000000a';
const TENANT = '00000000-0000-7000-8000-00000000000b';
const EXPERIMENT = '00000000-0000-7000-8000-00000000000e';

const created: PayloadOf<'AdapterCreated'> = {
  adapterId: ADAPTER,
  name: 'support',
  spec: { rank: 8, alpha: 16, rslora: false, targets: ['q'], seed: '1' },
  baseDigest: '0'.repeat(64),
  numericsId: 'f32-1',
  experimentId: null,
};
const client = { kind: 'client', sessionId: 's' } as const;
const step: Operation = {
  kind: 'optim_step',
  adam: { learningRate: 1e-3, beta1: 0.9, beta2: 0.95, eps: 1e-8, weightDecay: 0, gradClipNorm: 1 },
};

function anOpenAdapter(experimentId: string | null = null): Adapter {
  return evolveAdapter(NO_ADAPTER, {
    type: 'AdapterCreated',
    tenantId: TENANT,
    payload: { ...created, experimentId },
  });
}

describe('an absent adapter', () => {
  it('is created with its name and a head', () => {
    const creation = decideCreateAdapter(NO_ADAPTER, TENANT, created);
    expect(creation.head).toEqual({ change: 'create', adapterId: ADAPTER });
    expect(creation.name).toEqual({ tenantId: TENANT, kind: 'adapter', name: 'support', id: ADAPTER });
  });

  it('takes no operation', () => {
    expect(() => decideAcceptOperations(NO_ADAPTER, ADAPTER, [step], client)).toThrow('no adapter');
  });
});

describe('an open adapter', () => {
  it('cannot be created again', () => {
    expect(() => decideCreateAdapter(anOpenAdapter(), TENANT, created)).toThrow('exists already');
  });

  it('gives operations consecutive indices from the next one', () => {
    const first = decideAcceptOperations(anOpenAdapter(), ADAPTER, [step, step], client);
    expect(first.payloads.map((p) => p.opIndex)).toEqual(['1', '2']);
    expect(first.head).toEqual({ change: 'accept', adapterId: ADAPTER, first: 1n, last: 2n });
    const after = first.payloads.reduce(
      (adapter, payload) => evolveAdapter(adapter, { type: 'OperationAccepted', tenantId: TENANT, payload }),
      anOpenAdapter(),
    );
    expect(decideAcceptOperations(after, ADAPTER, [step], client).payloads[0]?.opIndex).toBe('3');
  });

  it('takes operations of its experiment only', () => {
    const origin = { kind: 'experiment', experimentId: EXPERIMENT, runOrdinal: 0, step: 0 } as const;
    expect(decideAcceptOperations(anOpenAdapter(EXPERIMENT), ADAPTER, [step], origin).payloads).toHaveLength(1);
    expect(() => decideAcceptOperations(anOpenAdapter(EXPERIMENT), ADAPTER, [step], client)).toThrow(
      'is trained by experiment',
    );
    expect(() => decideAcceptOperations(anOpenAdapter(), ADAPTER, [step], origin)).toThrow('belongs to no experiment');
  });

  it('names the field of a datum that does not fit its loss', () => {
    const operation: Operation = {
      kind: 'forward_backward',
      loss: { name: 'importance_sampling' },
      datums: [
        {
          source: 'inline',
          recordId: null,
          subjectIds: [],
          prompt: int32Tensor([1]),
          branches: [{ tokens: int32Tensor([2, 3]), weights: null, logprobs: float32Tensor([0]), advantages: null }],
        },
      ],
    };
    expect(() => decideAcceptOperations(anOpenAdapter(), ADAPTER, [operation], client)).toThrow(
      'operations[0].datums[0].branches[0].logprobs: expected 2 values, got 1; ' +
        'operations[0].datums[0].branches[0].advantages: importance_sampling needs it',
    );
  });

  it.each(EVERY_LOSS)('takes what $name takes, and names each number that is missing, foreign or misshapen', (loss) => {
    const random = new Random(1);
    const several = loss.name === 'gspo' ? 1 : 3;
    const operation = underLoss(random, loss, several) as Extract<Operation, { kind: 'forward_backward' }>;
    expect(decideAcceptOperations(anOpenAdapter(), ADAPTER, [operation], client).payloads).toHaveLength(1);
    const [datum] = operation.datums as [InlineDatum];
    const at = 'operations[0].datums[0].branches[0]';
    const refusal = (change: Partial<InlineDatum['branches'][number]>): string => {
      const branches = [{ ...datum.branches[0]!, ...change }];
      const changed: Operation = { ...operation, datums: [{ ...datum, branches }] };
      try {
        decideAcceptOperations(anOpenAdapter(), ADAPTER, [changed], client);
        return 'accepted';
      } catch (error) {
        return (error as Error).message;
      }
    };
    for (const field of ['weights', 'logprobs', 'advantages', 'gradients', 'mask'] as const) {
      const isNeeded = (LOSS_BRANCH_FIELDS[loss.name] as readonly BranchField[]).includes(field);
      const change = { [field]: isNeeded ? null : float32Tensor([0, 0, 0, 0, 0]) };
      expect(refusal(change)).toBe(`${at}.${field}: ${loss.name} ${isNeeded ? 'needs it' : 'takes none; send null'}`);
      if (isNeeded) expect(refusal({ [field]: float32Tensor([0, 0]) })).toContain(`${at}.${field}: expected`);
      if (isNeeded) expect(refusal({ [field]: int32Tensor([0, 0, 0, 0, 0]) })).toContain('expected dtype f32');
    }
    expect(refusal({ targets: int32Tensor([1, 2], [1, 2]) })).toContain(`${at}.targets: expected the shape [5]`);
    expect(refusal({ targets: int32Tensor([], [5, 0]) })).toContain(`${at}.targets: expected the shape [5]`);
    expect(refusal({ targets: float32Tensor([1, 2, 3, 4, 5]) })).toContain(`${at}.targets: expected dtype i32`);
  });

  it('keeps gspo to one target per position, and thresholds in order', () => {
    const gspo = underLoss(new Random(2), { name: 'gspo', clipLow: 1.2, clipHigh: 0.8 }, 2);
    expect(() => decideAcceptOperations(anOpenAdapter(), ADAPTER, [gspo], client)).toThrow(
      /loss\.clipHigh: expected clipLow \(1\.2\) or more.*targets: gspo takes one target per position/,
    );
  });

  it('refuses an empty list', () => {
    expect(() => decideAcceptOperations(anOpenAdapter(), ADAPTER, [], client)).toThrow('at least one operation');
  });
});
