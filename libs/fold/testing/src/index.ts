export { Random } from './random';
export {
  ADAPTER,
  BASE_DIGEST,
  REQUEST,
  ROLLOUTS,
  RecordedEvents,
  TENANT,
  WORKER,
  trainingOnBothPrompts,
  twoPromptsAnsweredOutOfOrder,
} from './recorded-events';
export { TINY_BASE, openTinyBase } from './tiny-base';
export {
  A_SPEC,
  CHECKPOINT,
  STEP,
  VOCABULARY,
  aDemonstration,
  aScoredGroup,
  aTrainingScript,
  reinforced,
  supervised,
} from './training-script';
