import {
  LOSS_BRANCH_FIELDS,
  takesAdvantages,
  type BranchField,
  type DatumPayload,
  type FieldProblem,
  type InlineDatum,
  type LossPayload,
  type Operation,
  type Tensor,
} from '#hotbed/contracts';

type InlineBranch = InlineDatum['branches'][number];

const BRANCH_FIELDS = ['weights', 'logprobs', 'advantages', 'gradients', 'mask'] as const satisfies BranchField[];

/** Everything about an operation that can be refused without the engine, with the path of each wrong field. */
export function operationProblems(operation: Operation, path: string): FieldProblem[] {
  if (operation.kind !== 'forward_backward') return [];
  return [
    ...lossProblems(operation.loss, `${path}.loss`),
    ...operation.datums.flatMap((datum, i) => datumProblems(datum, operation.loss, `${path}.datums[${i}]`)),
  ];
}

export function lossProblems(loss: LossPayload, path: string): FieldProblem[] {
  if (!('clipLow' in loss) || loss.clipLow <= loss.clipHigh) return [];
  return [{ path: `${path}.clipHigh`, message: `expected clipLow (${loss.clipLow}) or more, got ${loss.clipHigh}` }];
}

function datumProblems(datum: DatumPayload, loss: LossPayload, path: string): FieldProblem[] {
  if (datum.source === 'inline') return inlineProblems(datum, loss, path);
  if (!takesAdvantages(loss.name)) {
    return [{ path, message: `recorded rollouts carry advantages; ${loss.name} takes none` }];
  }
  return tensorProblems(datum.advantages, 'f32', [datum.branches.length], `${path}.advantages`);
}

function inlineProblems(datum: InlineDatum, loss: LossPayload, path: string): FieldProblem[] {
  const problems = tensorProblems(datum.prompt, 'i32', null, `${path}.prompt`);
  if (datum.prompt.shape[0] === 0) problems.push({ path: `${path}.prompt`, message: 'expected at least one token' });
  datum.branches.forEach((branch, b) => problems.push(...branchProblems(branch, loss, `${path}.branches[${b}]`)));
  return problems;
}

function branchProblems(branch: InlineBranch, loss: LossPayload, path: string): FieldProblem[] {
  const problems = tensorProblems(branch.tokens, 'i32', null, `${path}.tokens`);
  const length = branch.tokens.shape[0] ?? 0;
  if (branch.targets) problems.push(...targetsProblems(branch.targets, loss, length, `${path}.targets`));
  const needed: readonly BranchField[] = LOSS_BRANCH_FIELDS[loss.name];
  for (const field of BRANCH_FIELDS) {
    const tensor = branch[field] ?? null;
    const at = `${path}.${field}`;
    const isNeeded = needed.includes(field);
    if (tensor === null && isNeeded) problems.push({ path: at, message: `${loss.name} needs it` });
    if (tensor !== null && !isNeeded) problems.push({ path: at, message: `${loss.name} takes none; send null` });
    if (tensor === null || !isNeeded) continue;
    const shape = field === 'mask' ? [length] : (branch.targets?.shape ?? [length]);
    problems.push(...tensorProblems(tensor, 'f32', shape, at));
  }
  return problems;
}

/** [n], or [n, K] with K >= 1. */
function targetsProblems(targets: Tensor, loss: LossPayload, length: number, path: string): FieldProblem[] {
  if (targets.dtype !== 'i32') return [{ path, message: `expected dtype i32, got ${targets.dtype}` }];
  const [rows, several, ...more] = targets.shape;
  if (rows !== length || several === 0 || more.length > 0) {
    return [{ path, message: `expected the shape [${length}] or [${length}, K], got [${targets.shape.join(', ')}]` }];
  }
  if (loss.name === 'gspo' && several !== undefined && several !== 1) {
    return [{ path, message: 'gspo takes one target per position: its ratio is that of a sequence' }];
  }
  return [];
}

/** `shape` null: any length, one dimension. */
function tensorProblems(
  tensor: Tensor,
  dtype: Tensor['dtype'],
  shape: readonly number[] | null,
  path: string,
): FieldProblem[] {
  const problems: FieldProblem[] = [];
  if (tensor.dtype !== dtype) problems.push({ path, message: `expected dtype ${dtype}, got ${tensor.dtype}` });
  if (tensor.shape.length !== (shape?.length ?? 1)) {
    const expected = shape === null || shape.length === 1 ? 'one dimension' : `the shape [${shape.join(', ')}]`;
    problems.push({ path, message: `expected ${expected}` });
  } else if (shape !== null && shape.some((size, i) => tensor.shape[i] !== size)) {
    const [expected, got] = [shape.join(' x '), tensor.shape.join(' x ')];
    problems.push({ path, message: `expected ${expected} values, got ${got}` });
  }
  return problems;
}
