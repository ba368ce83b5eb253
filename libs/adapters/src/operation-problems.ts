import type { DatumPayload, FieldProblem, InlineDatum, LossPayload, Operation, Tensor } from '#hotbed/contracts';

/** Everything about an operation that can be refused without the engine, with the path of each wrong field. */
export function operationProblems(operation: Operation, path: string): FieldProblem[] {
  if (operation.kind !== 'forward_backward') return [];
  return operation.datums.flatMap((datum, i) => datumProblems(datum, operation.loss, `${path}.datums[${i}]`));
}

function datumProblems(datum: DatumPayload, loss: LossPayload, path: string): FieldProblem[] {
  if (datum.source === 'inline') return inlineProblems(datum, loss, path);
  if (loss.name === 'cross_entropy') {
    return [{ path, message: 'recorded rollouts carry advantages; use importance_sampling or ppo' }];
  }
  return tensorProblems(datum.advantages, 'f32', datum.branches.length, `${path}.advantages`);
}

function inlineProblems(datum: InlineDatum, loss: LossPayload, path: string): FieldProblem[] {
  const problems = tensorProblems(datum.prompt, 'i32', null, `${path}.prompt`);
  if (datum.prompt.shape[0] === 0) problems.push({ path: `${path}.prompt`, message: 'expected at least one token' });
  const needed = loss.name === 'cross_entropy' ? (['weights'] as const) : (['logprobs', 'advantages'] as const);
  datum.branches.forEach((branch, b) => {
    const at = `${path}.branches[${b}]`;
    problems.push(...tensorProblems(branch.tokens, 'i32', null, `${at}.tokens`));
    const length = branch.tokens.shape[0] ?? 0;
    for (const field of ['weights', 'logprobs', 'advantages'] as const) {
      const tensor = branch[field];
      const isNeeded = (needed as readonly string[]).includes(field);
      if (tensor === null && isNeeded) problems.push({ path: `${at}.${field}`, message: `${loss.name} needs it` });
      if (tensor !== null && !isNeeded) {
        problems.push({ path: `${at}.${field}`, message: `${loss.name} takes none; send null` });
      }
      if (tensor !== null && isNeeded) problems.push(...tensorProblems(tensor, 'f32', length, `${at}.${field}`));
    }
  });
  return problems;
}

function tensorProblems(tensor: Tensor, dtype: Tensor['dtype'], length: number | null, path: string): FieldProblem[] {
  const problems: FieldProblem[] = [];
  if (tensor.dtype !== dtype) problems.push({ path, message: `expected dtype ${dtype}, got ${tensor.dtype}` });
  if (tensor.shape.length !== 1) problems.push({ path, message: 'expected one dimension' });
  else if (length !== null && tensor.shape[0] !== length) {
    problems.push({ path, message: `expected ${length} values, got ${tensor.shape[0]}` });
  }
  return problems;
}
