import { VerifierError, type Completion } from './verifier';

/**
 * The answer that a completion is compared with: the configured template, in which {prompt}, {answer} and
 * {metadata.<name>} stand for the record's, or else the record's answer.
 * @throws VerifierError `no_answer`
 */
export function expectedAnswer(completion: Completion, template: string | null): string {
  if (template === null) return completion.answer ?? missing('the record has no answer');
  return template.replaceAll(
    /\{(prompt|answer|metadata\.([^{}]+))\}/g,
    (_, field: string, name: string | undefined) => {
      if (field === 'prompt') return completion.prompt;
      if (field === 'answer') return completion.answer ?? missing('the template names {answer}, the record has none');
      return completion.metadata[name ?? ''] ?? missing(`the record has no metadata "${name}"`);
    },
  );
}

function missing(message: string): never {
  throw new VerifierError('no_answer', message);
}
