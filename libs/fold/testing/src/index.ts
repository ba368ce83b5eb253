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
  EVERY_LOSS,
  STEP,
  VOCABULARY,
  aDemonstration,
  aScoredGroup,
  aTrainingScript,
  reinforced,
  supervised,
  underLoss,
} from './training-script';
