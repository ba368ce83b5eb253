export { VerifierError, defineVerifier, type Completion, type Verdict, type Verifier } from './verifier';
export { BUILT_IN_VERIFIERS, findVerifier, type FoundVerifier } from './verifier-registry';
