// What each loss takes, in one place: the doors check against it, the trainer picks by it.
#ifndef HOTBED_ENGINE_LOSS_FIELDS_H_
#define HOTBED_ENGINE_LOSS_FIELDS_H_

#include "engine/engine.h"

namespace hotbed {

struct LossFields {
  const char* word;  // "cross_entropy", ...
  // Per target, of a branch.
  bool weights;
  bool advantages;  // with the recorded log-probs
  bool gradients;
  // Per position, of a branch.
  bool mask;
  // Of the loss.
  bool clip;
  bool beta;
};

const LossFields& FieldsOf(LossName name);

// The numbers of a branch that stand for w, A or c, and null or the recorded log-probs. The branch
// has passed the door.
const std::vector<float>& TargetWeights(const Branch& branch, LossName name);
const std::vector<float>* RecordedLogprobs(const Branch& branch, LossName name);

}  // namespace hotbed

#endif  // HOTBED_ENGINE_LOSS_FIELDS_H_
